"""Wording for columns: the name of a column as a label, the type of its values, and a fitting wording.

a column                   becomes
Category, category_name    label "category", type "category"
discoveredBy               label "discoverer"
founded (years)            label "founding year"
height (12 m, 13 m)        "a tower with a height of {y} metres"
country (entities)         "a tower in {y}", "an author from {y}"
birthplace                 "a person who was born in {y}"
next station (of a station)   "the next station after {x}"
discontinued (yes, no)     label "discontinued status"
"""

from __future__ import annotations

import re

_KEPT = {
    "movies": "movie",
    "cookies": "cookie",
    "zombies": "zombie",
    "calories": "calorie",
    "pies": "pie",
    "ties": "tie",
}
_IRREGULAR = _KEPT | {
    **{"people": "person", "persons": "person", "men": "man", "women": "woman", "children": "child"},
    **{"mice": "mouse", "feet": "foot", "teeth": "tooth", "geese": "goose", "lives": "life", "wives": "wife"},
    **{"buses": "bus", "gases": "gas", "viruses": "virus", "statuses": "status", "wolves": "wolf", "leaves": "leaf"},
    **{
        "indices": "index",
        "matrices": "matrix",
        "vertices": "vertex",
        "criteria": "criterion",
        "phenomena": "phenomenon",
    },
    **{"analyses": "analysis", "bases": "basis", "crises": "crisis", "theses": "thesis", "axes": "axis"},
}
_SAME = {
    "series",
    "species",
    "news",
    "data",
    "media",
    "status",
    "gas",
    "bus",
    "lens",
    "bias",
    "virus",
    "campus",
    "canvas",
}
_SAME |= {"physics", "mathematics", "chess", "atlas", "genus", "corpus", "census", "bonus", "iris", "basis", "analysis"}


def singular(noun: str) -> str:
    """The singular: countries, movies, boxes, people -> country, movie, box, person; a singular stays."""
    head, gap, last = re.match(r"(.*?)((?:[ _-])?)([^ _-]*)$", noun).groups()  # type: ignore[union-attr]
    low = last.lower()
    if low in _IRREGULAR:
        one = _IRREGULAR[low]
    elif low in _SAME or not low.endswith("s") or low.endswith(("ss", "us", "is")):
        one = low
    elif low.endswith("ies") and len(low) > 4:
        one = low[:-3] + "y"
    elif re.search(r"(?:ss|x|z|ch|sh)es$", low):
        one = low[:-2]
    else:
        one = low[:-1]
    return head + gap + (one[:1].upper() + one[1:] if last[:1].isupper() else one)


_AGENTS = {
    **{"written": "writer", "made": "maker", "built": "builder", "sung": "singer", "drawn": "drawer", "led": "leader"},
    **{"sold": "seller", "taught": "teacher", "owned": "owner", "invented": "inventor", "created": "creator"},
    **{"directed": "director", "edited": "editor", "translated": "translator", "illustrated": "illustrator"},
    **{"narrated": "narrator", "curated": "curator", "operated": "operator", "discovered": "discoverer"},
    **{"founded": "founder", "designed": "designer", "composed": "composer", "produced": "producer"},
    **{"published": "publisher", "painted": "painter", "developed": "developer", "performed": "performer"},
    **{"managed": "manager", "supplied": "supplier", "named": "name giver", "approved": "approver"},
    **{"posted": "poster", "submitted": "submitter", "recorded": "recorder", "hosted": "host", "sponsored": "sponsor"},
    **{"coached": "coach", "manufactured": "manufacturer", "distributed": "distributor", "employed": "employer"},
}
PEOPLE = frozenset(  # types that are a "who"
    {
        *("person", "artist", "author", "employee", "customer", "actor", "director", "player", "writer", "scientist"),
        *("musician", "singer", "politician", "athlete", "poet", "painter", "student", "teacher", "doctor", "patient"),
        *(
            "guard",
            "coach",
            "trainer",
            "captain",
            "keeper",
            "curator",
            "guide",
            "warden",
            "owner",
            "chef",
            "cook",
            "nurse",
        ),
        *(
            "judge",
            "officer",
            "soldier",
            "general",
            "admiral",
            "winner",
            "champion",
            "referee",
            "goalkeeper",
            "instructor",
        ),
        *(
            "lecturer",
            "professor",
            "pupil",
            "donor",
            "sitter",
            "sculptor",
            "photographer",
            "engineer",
            "mayor",
            "president",
        ),
        *("librarian", "volunteer", "striker", "midfielder", "defender", "secretary", "treasurer", "chair", "minister"),
        *("manager", "contact", "user", "member", "monarch", "king", "queen", "pilot", "philosopher", "architect"),
        *(
            set(_AGENTS.values())
            - {"publisher", "manufacturer", "distributor", "operator", "maker", "supplier", "host"}
        ),
    }
)


def is_person(type_: str) -> bool:
    """Whether a type is a "who": a club member is a member, and so is a member of parliament."""
    words = re.split(r"[_ ]", type_)
    return words[-1] in PEOPLE or words[1:2] == ["of"] and words[0] in PEOPLE | {"head", "chief"}


EVENTS = {
    **{"founded": "founding", "born": "birth", "died": "death", "released": "release", "published": "publication"},
    **{"established": "founding", "built": "construction", "discovered": "discovery", "launched": "launch"},
    **{"opened": "opening", "closed": "closing", "created": "creation", "updated": "update", "modified": "change"},
    **{
        "started": "start",
        "ended": "end",
        "ordered": "order",
        "shipped": "shipping",
        "hired": "hiring",
        "signed": "signing",
    },
    **{"settled": "settlement", "abandoned": "abandonment", "restored": "restoration", "renovated": "renovation"},
    **{"rebuilt": "rebuilding", "destroyed": "destruction", "demolished": "demolition", "lit": "lighting"},
    **{"incorporated": "incorporation", "electrified": "electrification", "retired": "retirement", "sold": "sale"},
    **{"inaugurated": "inauguration", "acquired": "acquisition", "elected": "election", "appointed": "appointment"},
    **{
        "dissolved": "dissolution",
        "merged": "merger",
        "planted": "planting",
        "painted": "painting",
        "written": "writing",
    },
    **{"recorded": "recording", "produced": "production", "designed": "design", "premiered": "premiere"},
    **{"completed": "completion", "introduced": "introduction", "joined": "joining", "delivered": "delivery"},
    **{
        "invented": "invention",
        "since": "founding",
        "required": "required delivery",
        "formed": "founding",
        "expired": "expiry",
    },
}
_WHICH = {"home", "away", "visiting", "winning", "losing", "former", "current", "previous", "next", "main", "favourite"}
_GROUPS = {"category", "group", "class", "type", "genre", "family", "department", "league", "team", "club", "order"}
_GROUPS |= {"phylum", "section", "division", "series", "party", "union", "alliance", "kind", "genus", "tribe", "sector"}
_PLACES = {"country", "city", "town", "village", "continent", "region", "state", "province", "county", "district"}
SITES = ("village", "town", "city", "municipality", "commune", "hamlet", "suburb", "river", "lake", "mountain")  # types
SITES += ("island", "county", "province", "district", "neighbourhood", "neighborhood", "castle", "church", "station")
SITES += ("university", "school", "college", "museum", "club", "stadium", "bridge", "creek", "valley", "park")
_WITHIN = {"valley", "municipality", "parish", "suburb", "neighbourhood", "neighborhood"}
_INSIDE = {"room", "hall", "building"}
UNITS = {
    **{"km": "kilometres", "m": "metres", "cm": "centimetres", "mm": "millimetres", "mi": "miles", "ft": "feet"},
    **{
        "kg": "kilograms",
        "g": "grams",
        "t": "tonnes",
        "lb": "pounds",
        "sq km": "square kilometres",
        "km2": "square kilometres",
    },
    **{"km²": "square kilometres", "sq mi": "square miles", "m²": "square metres", "ha": "hectares", "l": "litres"},
    **{"h": "hours", "min": "minutes", "s": "seconds", "ms": "milliseconds", "kw": "kilowatts", "mw": "megawatts"},
    **{
        "km/h": "kilometres an hour",
        "mph": "miles an hour",
        "k": "kelvin",
        "°c": "degrees Celsius",
        "°f": "degrees Fahrenheit",
    },
    **{
        "%": "percent",
        "$": "dollars",
        "€": "euros",
        "£": "pounds",
        "usd": "US dollars",
        "eur": "euros",
        "kcal": "kilocalories",
    },
}


_LONG = {
    **{"melt": "melting point", "boil": "boiling point", "qty": "quantity", "dob": "date of birth", "lat": "latitude"},
    **{"lng": "longitude", "lon": "longitude", "pop": "population", "elev": "elevation", "temp": "temperature"},
    **{"desc": "description", "dept": "department", "addr": "address", "tel": "telephone", "amt": "amount"},
    **{"phone": "phone number", "fax": "fax number"},
    **{"pct": "percentage", "avg": "average", "num": "number", "wt": "weight", "ht": "height", "yr": "year"},
}


_MEASURED = {  # what a single letter can be the unit of: "revenue (m)" is in millions
    "m": r"height|length|width|depth|distance|elevation|altitude|radius|diameter|span|wingspan|prominence|beam",
    "k": r"point|temperature",
    "g": r"weight|mass",
    "t": r"weight|mass|displacement",
    "h": r"time|duration",
    "s": r"time|duration",
    "l": r"volume|capacity",
}
_PLACED = {  # what is done at a place -> what the place is called
    **{"stored": "storage place", "kept": "storage place", "located": "location", "based": "base", "held": "venue"},
    **{"born": "birthplace", "built": "building site", "made": "place of production", "moored": "mooring"},
    **{"filmed": "filming location", "recorded": "place of recording", "buried": "burial place", "played": "venue"},
    **{"found": "place of discovery", "printed": "place of printing", "published": "place of publication"},
    **{
        "produced": "place of production",
        "displayed": "place of display",
        "hosted": "venue",
        "parked": "parking place",
    },
}
_STILL = {
    "owned",
    "managed",
    "operated",
    "led",
    "sold",
    "taught",
    "supplied",
    "sponsored",
    "coached",
    "employed",
    "run",
}
_STILL |= {"distributed", "hosted", "curated", "maintained", "governed", "headed", "played", "used", "shared"}
_DONE = {"born", "built", "made", "filmed", "recorded", "found", "printed", "published", "produced"}  # once, not still


_ACRONYMS = {
    "un",
    "eu",
    "uk",
    "usa",
    "gdp",
    "gnp",
    "hdi",
    "tld",
    "url",
    "iata",
    "icao",
    "iso",
    "isbn",
    "issn",
    "ioc",
    "cioc",
}
_ACRONYMS |= {"dna", "rna", "gps", "tv", "vat", "iban"}
_CODES = {"code", "key", "sign", "id", "tag", "mark", "abbr", "icon", "initials"}


def code_of(column: str) -> str:
    """The name of a column of codes of letters as words: "cioc" -> "CIOC code"; a name that says so itself, or is a phrase,
    stays."""
    label = label_of(column)
    return f"{label} code" if label.isalpha() and len(label) <= 5 and label.lower() not in _CODES else column


def unit_of(column: str) -> str:
    """The unit that the name of a column of numbers ends with: "Height (cm)", "weight_kg", "price in EUR"; "" for none."""
    match = re.fullmatch(r"(.+?)[\s_]*[(\[]\s*(?:in )?([^()\[\]]+?)\s*[)\]]", column)
    bare = re.fullmatch(r"(.+?)(?:[ _]in)?[ _](%|[€$£]|[^\W\d_]{1,4})", column) if match is None else None
    ending = match or bare
    unit = ending[2].lower() if ending else ""
    if ending is None or unit not in UNITS or (bare and unit in ("min", "mi", "ha", "ms", "mw")):
        return ""
    words = _MEASURED.get(unit)
    return ending[2] if words is None or re.search(rf"\b(?:{words})$", label_of(ending[1])) else ""


def relation_name(text: str) -> str:
    """A text as the name of a relation: lower case, one underscore in place of all that is no letter or digit."""
    return re.sub(r"\W+", "_", text).strip("_").lower()


def label_of(column: str) -> str:
    """The name of a column as words: "CompanyName" -> "company name", "qty" -> "quantity", "GDP" stays."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", column)
    words = re.sub(r"[\W_]+", " ", text).split() or [column]
    swap = words[0].lower() == "name" and len(words) in (2, 3)  # name.official, name.native.common
    words = words[1:] + words[:1] if swap else words
    return one_word(
        " ".join(
            w.upper()
            if w.lower() in _ACRONYMS and (len(w) > 2 or len(words) > 1)
            else w
            if w.isupper() and len(w) <= 5 and len(words) > 1 or w.isupper() and len(w) <= 4
            else _LONG.get(w.lower(), w.lower())
            for w in words
        )
    )


def one_word(text: str) -> str:
    """What English writes as one word: "birth place" -> "birthplace"."""
    return re.sub(r"(?i)\b(birth|work) place\b", lambda m: f"{m[1].lower()}place", text)


def thing_of(column: str) -> str:
    """The type of the things in a column of names: "category_name" -> "category", "countries" -> "country",
    "discoveredBy" -> "discoverer"."""
    label = singular(agent_of(label_of(column)))
    if _placed(label):
        return "place"
    if label.split()[-1] in _PLACES:  # "billing city" and "home city" are cities
        return label.split()[-1]
    short = re.sub(r" (?:name|title|id|code|type)$", "", label)
    words = (short or label).split(" ")
    return "_".join(w if w.lower() in _ACRONYMS and len(words) > 1 else w.lower() for w in words)


def _placed(label: str) -> tuple[str, str, str] | None:
    """(verb, preposition, what the place is called) of "stored at"."""
    words = re.fullmatch(r"(?:(?:is|was) )?(\w+) (at|in|on)", label)
    return (words[1], words[2], _PLACED[words[1]]) if words and words[1] in _PLACED else None


def counted_things(label: str) -> str:
    """What a number counts: "number of platforms" -> "platforms"; another label stays."""
    of = re.fullmatch(r"(?:number|num|no|count) of (\w+)|(?:number|num) (\w+)", label)
    things = (of[1] or of[2]) if of else ""
    return things if many(things) else label


def counted_words(label: str) -> dict[str, str]:
    """The words of plain numbers: of what they count, the passage says how many there are."""
    return {"label": label, **({"passage": "The number of {label} of {x} is {y}."} if counted(label) else {})}


def counted(noun: str) -> bool:
    """Whether a number before the noun counts it: "150 airports", but not "150 exports (%)" or "150 reserves in
    barrels"."""
    if re.match(r"units (?:in|on) ", noun):
        return True
    plain = re.fullmatch(r"[^\W\d_]+(?: [^\W\d_]+)*", noun) is not None
    return many(noun) and plain and not re.search(r"\b(?:of|in|per|by|at)\b", noun)


_MASS = {"land", "water", "gas", "oil", "gold", "coal", "electricity", "energy", "snow", "ice", "sugar", "salt"}


def measured(label: str, domain: str, unit: str) -> dict[str, str]:
    """The words of numbers with a unit: "an island with an area of {y} square kilometres"."""
    words = UNITS.get(unit.lower(), unit)
    one = "{label}" if many(label) or label.split(" ")[-1] in _MASS else article("{label}", label)
    return {
        "label": label,
        "passage": f"The {{label}} of {{x}} {'are' if many(label) else 'is'} {{y}} {words}.",
        "forward": f"the {{label}} in {words} of {{x}}",
        "inverse": f"{article('{domain}', domain)} with {one} of {{y}} {words}",
    }


def phrased(label: str, domain: str, range: str) -> dict[str, str]:
    """The words of a label that has a phrase of its own: "ferry to", "birthplace", "next station", the "line" of a station;
    none for another."""
    if label in ("birthplace", "place of birth") and is_person(domain):
        inverse = f"{article('{domain}', domain)} who was born in {{y}}"
        return {"label": label, "passage": "{x} was born in {y}.", "inverse": inverse}
    if domain == range and (beside := {"next": "after", "previous": "before"}.get(label.split(" ")[0])):
        own = label if " " in label else f"{label} {range.replace('_', ' ')}"
        if not _PREPOSITIONS & set(own.split()):
            said = f"the {{label}} {beside} {{x}}"
            return {"label": own, "passage": f"{said[0].upper()}{said[1:]} is {{y}}.", "forward": said}
    if label.split(" ")[-1] == "line" and domain.split("_")[-1] in ("station", "stop"):
        return {"label": label, "passage": "{x} is on {y}.", "inverse": f"{article('{domain}', domain)} on {{y}}"}
    return tied(label, domain, range) if range != "string" else {}


def key_words(label: str, domain: str, range: str) -> dict[str, str]:
    """The words of a document's key or of a triple: those of `phrased`, and of the place in which something lies, "a station in
    {y}"; none for what may lie nowhere, as a film."""
    if words := phrased(label, domain, range):
        return words
    if label not in _PLACES or label != range or domain.split("_")[-1] not in SITES:
        return {}
    return {"label": label, "passage": "{x} is in {y}.", "inverse": f"{article('{domain}', domain)} in {{y}}"}


def tied(label: str, domain: str, range: str) -> dict[str, str]:
    """The words of a label such as "ferry to": "an island with a ferry to {y}"; none for another label."""
    noun, _, to = label.rpartition(" ")
    if to not in ("to", "from", "with", "at", "on") or noun.split(" ")[-1] not in _TIES:
        return {}
    one, back = article(noun, noun), {"to": "from", "from": "to"}.get(to)
    ends = f"with {one} {back} {{x}}" if back else f"that {{x}} has {one} {to}"
    return {
        "label": noun,
        "passage": f"{{x}} has {one} {to} {{y}}.",
        "forward": f"{article(range.replace('_', ' '), range)} {ends}",
        "inverse": f"{article('{domain}', domain)} with {one} {to} {{y}}",
    }


def many(noun: str) -> bool:
    """Whether a noun phrase is one of many things: "airports", "exports - partners", "key ports (of call)"; not "gas",
    "debt in dollars", "actor who plays in films"."""
    head = re.split(r" \(| - (?=[^ ]+ )| (?:of|in|per|by|at|from|as|for|on|to|with|who|that|which|whose) |, ", noun)[0]
    word = re.sub(r"[\s\d]+$", "", head).split(" ")[-1].lower()
    return word.endswith("s") and not word.endswith(("ss", "us", "is", "'s")) and word not in _NO_PLURAL


_NO_PLURAL = {"series", "species", "news", "gas", "bias", "lens", "atlas", "canvas", "mathematics", "physics", "chess"}


def event_of(label: str) -> str:
    """The noun of a participle: "opened" -> "opening", "first lit" -> "first lighting"; another label stays."""
    head, gap, last = label.rpartition(" ")
    return head + gap + EVENTS.get(last, last) if head in ("", "first", "last", "officially") else label


def _dated(event: str, bare: str, range: str) -> str:
    """The label of the year or date of an event: "opening year"; "year of first lighting", not "first lighting year"."""
    return f"{range} of {event}" if event != bare and event.startswith(("first ", "last ")) else f"{event} {range}"


def agent_of(label: str) -> str:
    """ "discovered by" -> "discoverer"; another label stays."""
    verb = re.fullmatch(r"(?:(?:is|was|been) )?(\w+) by", label)
    if verb is None:
        return label
    return _AGENTS.get(verb[1]) or (f"{verb[1][:-1]}r" if verb[1].endswith("ed") else label)


def wording(
    column: str,
    domain: str,
    range: str,
    *,
    unit: str = "",
    flag: bool = False,
    both: bool = False,
    single: bool = False,
) -> dict[str, str]:
    """The label of a relation and, if its kind has better ones, templates that replace those of `Relation`.

    range   "number", "year", "date", "string", or a type   unit   of its numbers   flag   whether its values are yes and
    no   both   whether it holds in both directions (a border)   single   whether a subject has one object at most
    """
    label = label_of(column)
    first, _, rest = label.partition(" ")
    own = rest and first != domain and singular(first) == domain and rest.split()[0] not in _PREPOSITIONS
    label = rest if own else label  # "currencies symbol" of a currency
    a_domain = article("{domain}", domain)
    if range in ("year", "date"):
        bare = re.sub(r"^(?:year|date)(?: of)? | (?:year|date|at|on|in|time)$", "", label)
        return {"label": label if (event := event_of(bare)) == range or bare == "" else _dated(event, bare, range)}
    if range == "number" and unit:
        return measured(re.sub(rf" (?:in )?(?:{re.escape(unit.lower())})$", "", label), domain, unit)
    if range == "number":
        return counted_words(counted_things(label))
    if flag:
        says = {"passage": "{x} is {y}.", "inverse": f"{a_domain} that is {{y}}"} if adjective(label) else {}
        return {"label": f"{re.sub(r'^(?:is|has) ', '', label)} status", **says}
    if placed := _placed(label):
        verb, where, place = placed
        is_ = "was" if verb in _DONE else "is"
        sentences = {
            "passage": f"{{x}} {is_} {verb} {where} {{y}}.",
            "inverse": f"{a_domain} that {is_} {verb} {where} {{y}}",
        }
        return {"label": place, **sentences}
    verb = re.fullmatch(r"(?:(?:is|was) )?(\w+) by", label)
    label = agent_of(re.sub(r"(?<=\w) (?:name|id)$", "", label) if range != "string" else label)
    if words := phrased(label, domain, range):
        return words
    if range != "string" and label.split()[-1] in _PREPOSITIONS:  # "ship via", "reports to"
        label = "manager" if label == "reports to" and domain == range else range.replace("_", " ")
    if range != "string" and label in _WHICH and range.split("_")[-1] != label:  # the home of a match is a home team
        label = f"{label} {range.replace('_', ' ')}"
    lands = domain in _PLACES or singular(label) == "border"  # huts are neighbours, and border nothing
    if range == domain and lands and singular(label) in ("border", "neighbour", "neighbor"):
        return {
            "label": "neighbour",
            "passage": "{x} borders {y}.",
            "forward": f"{a_domain} that borders {{x}}",
            "inverse": f"{a_domain} that borders {{y}}",
        }
    if both:
        one, that = article(singular(label), singular(label)), "who" if is_person(domain) else "that"
        return {
            "label": singular(label),
            "passage": f"{{x}} is {one} of {{y}}.",
            "forward": f"{a_domain} {that} is {one} of {{x}}",
            "inverse": f"{a_domain} {that} is {one} of {{y}}",
        }
    return _of_one(label, domain, range, verb[1] if verb else "") if single else {"label": label}


def _of_one(label: str, domain: str, range: str, verb: str) -> dict[str, str]:
    """The words of a column with one object for each subject. verb: that of "built by"."""
    a_domain, person = article("{domain}", domain), is_person(domain)
    at = "from" if person else "in"  # an author is from a country, wherever she is
    if range == "string" and label in ("city", "town", "village"):  # a text; a state may be a code, "IL"
        return {"label": label, "inverse": f"{a_domain} {at} {{y}}"}
    if range == "string" or label.lower().replace(" ", "_") != range.lower():
        return {"label": label}
    if verb in _STILL:
        return {"label": label, "passage": f"{{x}} is {verb} by {{y}}.", "inverse": f"{a_domain} {verb} by {{y}}"}
    if verb.endswith("ed") or verb in ("built", "made"):
        return {
            "label": label,
            "passage": f"{{x}} was {verb} by {{y}}.",
            "forward": f"the {{label}} who {verb} {{x}}",
            "inverse": f"{a_domain} that was {verb} by {{y}}",
        }
    if label in _PLACES | _WITHIN or label in _INSIDE and not person:
        says, of, gap = f"{{x}} is {at} {{y}}.", f"is {at}", f"{at} "
    elif label.split()[-1] in _GROUPS:
        says, of, gap = "{x} belongs to the {label} {y}.", "belongs to", "in the {label} "
    else:
        return {"label": label}
    return {
        "label": label,
        "passage": says,
        "forward": f"the {{label}} that {{x}} {of}",
        "inverse": f"{a_domain} {gap}{{y}}",
    }


def deed_by(agent: str) -> str:
    """What somebody did to be called so: author -> "wrote"; "" where that is over when it is no longer done."""
    return _DID.get(agent, "")


def deed_of(table: str) -> str:
    """What people did with the things that a table ties them to: "loans", "book_loan" -> "borrowed"; "" where its name
    does not say."""
    return _DEEDS.get(singular(label_of(table)).split(" ")[-1], "")


_DID = {agent: verb for verb, agent in _AGENTS.items() if verb.endswith("ed") and verb not in _STILL | {"directed"}}
_DID |= {"author": "wrote", "writer": "wrote", "builder": "built", "maker": "made", "architect": "designed"}
_DEEDS = {"loan": "borrowed", "rental": "rented", "purchase": "bought", "reservation": "reserved", "booking": "booked"}
_DEEDS |= {"review": "reviewed", "visit": "visited"}
_TIES = {"ferry", "bridge", "tunnel", "road", "flight", "train", "bus", "line", "route", "link", "connection", "path"}
_TIES |= {"treaty", "contract", "subscription", "loan", "appointment", "gift", "letter", "order", "border", "pass"}
_PREPOSITIONS = {"via", "to", "by", "of", "from", "at", "in", "on", "for", "with"}
_ADJECTIVE = re.compile(r"\w{2,}(?:ed|able|ible|ive|ous|ful|less|ant|ent|ary|ic|ical|locked)")
_ADJECTIVES = {"active", "open", "closed", "free", "new", "public", "private", "stable", "male", "female", "available"}
_ADJECTIVES |= {"alive", "dead", "married", "edible", "wild", "rare", "extinct", "official", "domestic", "global"}


def adjective(label: str) -> str:
    """The adjective that a column of yes and no is about: "is discontinued" -> "discontinued"; of what somebody or something
    is one of, "UN member" -> "a UN member"; "" where it is neither."""
    word = re.sub(r"^is ", "", label)
    if re.fullmatch(r"(?:an? )?[\w ]*\b(?:member|winner|champion)", word):
        return article(word, word) if not re.match(r"an? ", word) else word
    return word if " " not in word and (word in _ADJECTIVES or _ADJECTIVE.fullmatch(word)) else ""


def role(column: str, domain: str, range: str) -> dict[str, str]:
    """The words of a column that refers to another record: "SupplierID" -> "the supplier of {x}"."""
    words = wording(re.sub(r"(?i)(?<=.)[_ ]?id$", "", column), domain, range, single=True)
    return words | {"label": agent_of(words["label"])}


def article(text: str, noun: str) -> str:
    """The text with the article of a noun."""
    noun = noun.replace("_", " ")
    if re.match(r"[A-Z]{2,3}\b", noun):  # spelled letter by letter: "a UN member", "an HDI"
        return f"{'an' if noun[0] in 'AEFHILMNORSX' else 'a'} {text}"
    an = re.match(r"[aeio]|u(?!ni|se|sa|ti|ra|t[ei])|hour|honou?r|heir|honest", noun.lower()) and not re.match(
        r"one(?:\b|-)|once|eu|ewe", noun.lower()
    )
    return f"{'an' if an else 'a'} {text}"
