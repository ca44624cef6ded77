#!/usr/bin/env bash
# All measurements of one GPU in one call of at most ten minutes: benchmarks/gpu_day.sh OUT
#
# What is measured is written to OUT (and on the way to benchmarks/results), with a log of each part and parts.json: its
# exit code and seconds. A part that hangs or fails loses itself alone: each has a limit of seconds, and all together
# the BUDGET. The parts that matter most come first. With --plan it says what it would run, and runs nothing. With
# --rehearse OUT every part runs on the CPU with its smallest case, and nothing but OUT is written: a GPU that is lent for
# minutes should not be spent on a misspelt option.
set -uo pipefail
cd "$(dirname "$0")/.."
plan=0 rehearse=0
while [[ "${1:-}" == --* ]]; do
    case $1 in
        --plan) plan=1 ;;
        --rehearse) rehearse=1 ;;
        *) echo "gpu_day.sh: there is no option $1: --plan or --rehearse" >&2; exit 2 ;;
    esac
    shift
done
out=${1:-gpu-day}
python=${PYTHON:-.venv/bin/python}
budget=${BUDGET:-570}

# seconds, name, command
parts=(
    "20|device|$python -c 'import torch; p = torch.cuda.get_device_properties(0); print(p, torch.__version__, torch.version.cuda)'"
    "80|kernels|$python -m pytest -q -x tests/training/lm_head/test_kernels.py tests/training/rollout/test_sampler.py -k 'kernel or gpu'"
    "180|learner heads|$python -m benchmarks.learner --only 'head 8192' --turns 1"
    "110|sampling 135M|$python -m benchmarks.crossover --device cuda --only 'sampling 135M'"
    "60|steps 135M|$python -m benchmarks.crossover --device cuda --only 'sft 135M'"
    "90|learner steps|$python -m benchmarks.learner --only 'on a GPU' --turns 1"
    "80|sampling 600M|$python -m benchmarks.crossover --device cuda --only 'sampling 600M'"
    "60|steps 600M|$python -m benchmarks.crossover --device cuda --only 'sft 600M'"
)
if [ "$rehearse" = 1 ]; then
    there="--results $out"
    parts=(
        "60|device|$python -c 'import torch; print(torch.__version__, torch.cuda.is_available())'"
        "${parts[1]/#80/400}"
        "400|learner heads|$python -m benchmarks.learner --only 'dpo head 1024' --turns 1 $there"
        "200|sampling 135M|$python -m benchmarks.crossover --device cpu --only 'sampling 0.5M' $there"
        "200|steps 135M|$python -m benchmarks.crossover --device cpu --only 'sft 0.5M' $there"
        "400|learner steps|$python -m benchmarks.learner --only 'sft, equal lengths, 512 ids' --turns 1 $there"
    )
    budget=${BUDGET:-1800}
fi

if [ "$plan" = 1 ]; then
    printf '%s\n' "${parts[@]}"
    exit 0
fi
mkdir -p "$out"
begun=$SECONDS
told=""
for part in "${parts[@]}"; do
    IFS='|' read -r limit name command <<<"$part"
    left=$((budget - (SECONDS - begun)))
    [ "$left" -lt "$limit" ] && limit=$left
    from=$SECONDS
    if [ "$limit" -lt 5 ]; then
        code=no-time
    else
        timeout -k 5 "$limit" bash -c "$command" >"$out/${name// /-}.log" 2>&1
        code=$?
        tail -n 3 "$out/${name// /-}.log"
    fi
    echo "$name: $code after $((SECONDS - from)) s of $limit"
    told="$told${told:+, }{\"part\": \"$name\", \"code\": \"$code\", \"seconds\": $((SECONDS - from)), \"limit\": $limit}"
    printf '[%s]\n' "$told" >"$out/parts.json"
    # what is there by now stays, whatever happens to the rest
    [ "$rehearse" = 1 ] || cp benchmarks/results/learner.json benchmarks/results/crossover-gpu.json "$out/" 2>/dev/null
done
exit 0
