"""`make pictures`: a project in miniature under `espalier serve`, its second run looked at in Prefect, in MLflow and by `espalier status`.

Leaves status.txt, prefect.png and mlflow.png in .espalier/test-artifacts, and the two pictures in docs/images.
"""

import shutil
import sys
import tempfile
from pathlib import Path

CODE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CODE), str(CODE / "tests")]

import browser  # noqa: E402
import small  # noqa: E402
import yaml  # noqa: E402
from test_ui import mlflow  # noqa: E402
from test_schedules import Served, kept  # noqa: E402

from flows import cli  # noqa: E402


def project(root: Path) -> Path:
    """One that trains for seconds, with MLflow in a local file."""
    assert cli.main(["init", str(root)]) == 0
    small.write_project(root)
    settle(root, 0.002)
    return root


def settle(root: Path, lr: float) -> None:
    sizes = small.SIZES | {"rl": small.SIZES["rl"] | {"lr": lr}}
    params = {"seed": 3, "recipe": "grpo", "profile": "small", "tracking": "local", "set": sizes}
    (root / "params.yaml").write_text(yaml.safe_dump(params))


def main() -> int:
    if browser.BROWSER is None:
        print("error: there is no Chromium here: install one", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        served = Served(project(folder / "project"), code=CODE)
        served.start()
        try:
            first = served.ended(served.begin())
            settle(served.root, 0.004)
            second = served.ended(served.begin())
            assert [r["state"]["type"] for r in (first, second)] == ["COMPLETED"] * 2, served.said(second["id"]) or served.said(first["id"])
            (kept() / "status.txt").write_text(served.espalier("status"))
            with browser.page(folder) as page:
                page.open(f"{served.url.removesuffix('/api')}/runs/flow-run/{second['id']}", until=f"document.body.innerText.includes('{second['name']}')", seconds=240)
                page.wait("document.body.innerText.includes('Completed')", 240)
                page.picture(kept() / "prefect.png")
                print(served.espalier("sync"))
                with mlflow(served.root, served.env) as address:
                    page.open(f"{address}/#/experiments/1/runs", until="document.body.innerText.includes('matching runs')", seconds=240)
                    page.picture(kept() / "mlflow.png")
        finally:
            served.end()
    for name in ("prefect.png", "mlflow.png"):
        shutil.copy(kept() / name, CODE / "docs/images")
    print((kept() / "status.txt").read_text(), f"\n{kept()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
