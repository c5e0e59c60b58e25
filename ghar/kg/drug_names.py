"""Ingredients of drugs: names that hospitals write, and what DrugBank calls the substance.

Brand names and American names are facts of the trade, written by hand: what orders of the open demos use most.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ghar.kg.names import FORMS, SALTS, STRENGTH, plain

BRANDS = {  # brand -> first ingredient
    "adenocard": "adenosine", "aldactone": "spironolactone", "ambien": "zolpidem", "anectine": "succinylcholine",
    "apresoline": "hydralazine", "ativan": "lorazepam", "atrovent": "ipratropium", "augmentin": "amoxicillin",
    "bactrim": "sulfamethoxazole", "bactroban": "mupirocin", "benadryl": "diphenhydramine", "bumex": "bumetanide",
    "buspar": "buspirone", "cardene": "nicardipine", "cardizem": "diltiazem", "catapres": "clonidine",
    "celexa": "citalopram", "cipro": "ciprofloxacin", "cleocin": "clindamycin", "colace": "docusate",
    "combivent": "ipratropium", "compazine": "prochlorperazine", "cordarone": "amiodarone", "coreg": "carvedilol",
    "coumadin": "warfarin", "cozaar": "losartan", "cubicin": "daptomycin", "decadron": "dexamethasone",
    "deltasone": "prednisone", "demerol": "meperidine", "depacon": "valproic acid", "depakote": "valproic acid",
    "desyrel": "trazodone", "diflucan": "fluconazole", "dilantin": "phenytoin", "dilaudid": "hydromorphone",
    "diovan": "valsartan", "diprivan": "propofol", "dulcolax": "bisacodyl", "duoneb": "ipratropium",
    "duragesic": "fentanyl", "effexor": "venlafaxine", "ecotrin": "acetylsalicylic acid", "eliquis": "apixaban",
    "epogen": "erythropoietin", "flagyl": "metronidazole", "flomax": "tamsulosin", "fragmin": "dalteparin",
    "geodon": "ziprasidone", "glucagen": "glucagon", "glucophage": "metformin", "haldol": "haloperidol",
    "humalog": "insulin lispro", "humulin": "insulin human", "imdur": "isosorbide mononitrate",
    "imitrex": "sumatriptan", "inderal": "propranolol", "keflex": "cephalexin", "keppra": "levetiracetam",
    "klonopin": "clonazepam", "lantus": "insulin glargine", "lasix": "furosemide", "levaquin": "levofloxacin",
    "levemir": "insulin detemir", "levophed": "norepinephrine", "lexapro": "escitalopram", "lipitor": "atorvastatin",
    "lopressor": "metoprolol", "lovenox": "enoxaparin", "merrem": "meropenem", "mucomyst": "acetylcysteine",
    "narcan": "naloxone", "neosynephrine": "phenylephrine", "neurontin": "gabapentin", "nexium": "esomeprazole",
    "nimbex": "cisatracurium", "norco": "hydrocodone", "normodyne": "labetalol", "norvasc": "amlodipine",
    "novolin": "insulin human", "novolog": "insulin aspart", "ofirmev": "acetaminophen", "pepcid": "famotidine",
    "percocet": "oxycodone", "phenergan": "promethazine", "plavix": "clopidogrel", "pravachol": "pravastatin",
    "precedex": "dexmedetomidine", "prevacid": "lansoprazole", "prilosec": "omeprazole", "prinivil": "lisinopril",
    "procardia": "nifedipine", "procrit": "erythropoietin", "prograf": "tacrolimus", "protonix": "pantoprazole",
    "proventil": "salbutamol", "prozac": "fluoxetine", "pulmicort": "budesonide", "reglan": "metoclopramide",
    "remeron": "mirtazapine", "restoril": "temazepam", "risperdal": "risperidone", "robitussin": "guaifenesin",
    "rocephin": "ceftriaxone", "romazicon": "flumazenil", "roxicodone": "oxycodone", "seroquel": "quetiapine",
    "sinemet": "levodopa", "singulair": "montelukast", "solumedrol": "methylprednisolone",
    "sublimaze": "fentanyl", "synthroid": "levothyroxine", "tapazole": "methimazole", "tenormin": "atenolol",
    "toprol": "metoprolol", "toradol": "ketorolac", "trandate": "labetalol", "tylenol": "acetaminophen",
    "ultram": "tramadol", "valium": "diazepam", "vasotec": "enalapril", "ventolin": "salbutamol",
    "versed": "midazolam", "vicodin": "hydrocodone", "xanax": "alprazolam", "xarelto": "rivaroxaban",
    "xopenex": "levosalbutamol", "zantac": "ranitidine", "zemuron": "rocuronium", "zestril": "lisinopril",
    "zithromax": "azithromycin", "zocor": "simvastatin", "zofran": "ondansetron", "zoloft": "sertraline",
    "zosyn": "piperacillin", "zyprexa": "olanzapine", "zyvox": "linezolid",
}  # fmt: skip
SUBSTANCES = {  # another name of the same substance -> DrugBank's
    "albuterol": "salbutamol", "levalbuterol": "levosalbutamol", "aspirin": "acetylsalicylic acid",
    "asa": "acetylsalicylic acid", "torsemide": "torasemide", "glycopyrrolate": "glycopyrronium",
    "phytonadione": "phylloquinone", "vitamin k": "phylloquinone", "vitamin c": "ascorbic acid",
    "vitamin b12": "cyanocobalamin", "vitamin b1": "thiamine", "senna": "sennosides", "epoetin": "erythropoietin",
    "epoetin alfa": "erythropoietin", "insulin": "insulin human", "insulin regular": "insulin human",
    "regular insulin": "insulin human", "insulin regular human": "insulin human",
    "human insulin regular": "insulin human", "insulin human regular": "insulin human",
    "insulin aspart human": "insulin aspart", "insulin lispro human": "insulin lispro",
    "aspart insulin": "insulin aspart", "lispro insulin": "insulin lispro", "glargine": "insulin glargine",
    "dextrose": "d glucose", "glucose": "d glucose", "milk of magnesia": "magnesium hydroxide",
    "divalproex": "valproic acid", "valproate": "valproic acid", "ferrous sulfate": "ferrous sulfate anhydrous",
    "acyclovir": "aciclovir", "nacl": "sodium chloride", "kcl": "potassium chloride", "mgso4": "magnesium sulfate",
    "saline": "sodium chloride", "potassium": "potassium", "magnesium": "magnesium", "calcium": "calcium",
    "ntg": "nitroglycerin", "heparin sodium": "heparin", "t4": "levothyroxine", "inh": "isoniazid",
}  # fmt: skip
VEHICLES = frozenset({"d glucose", "sodium chloride", "water", "ethanol", "lactose", "oxygen"})  # drugs are given in
SHORTEST = 4  # letters of a name that is looked for inside another
# Words that are a substance in DrugBank and something else in an order.
OTHER_WORDS = frozenset(
    "acid base blood care control cold gas iron factor human normal plus protein pump rate set solution therapy unit "
    "units vitamin water alcohol nitrogen tube air silver gold lead tea milk".split()
)


# Beside FORMS, words of orders that name no substance: routes, packs and abbreviated forms.
PACKS = frozenset(
    "act aepb aero aers amp ampule back base blist blister bolus bq btl cap caps cartridge cont conc crtrdg cup "
    "custom each emul excel flex f fl ij im inh inhl inj iv ivpb liq liqd lvp mbp mdv ml mt mini ndc ndl nebu pack "
    "package pb pca per pf pgbk piggy plas plus pmx po powd prmx prn ptmd pwpk re recon rect repackage rtu sc sdv sl "
    "sol solp solr stock subl supp suppos sso sq syr syrg syring tabs tbcr tbec td top tb12 tb24 cp12 cp24 tube ud "
    "udcup udpwd unit units vial vials".split()
)
PREPOSITIONS = frozenset("of in for".split())  # "milk of magnesia"; "20 meq in 50 ml"; "1 each in nebu" is inhaled
RESIDUES = frozenset("s part cryst".split())  # of "unit(s)" and "extended release(part/cryst)"
ROUTES = frozenset("infusion diskus".split())  # behind a hyphen: "dilaudid pca -infusion"
VEHICLE_WORDS = frozenset("ns d5 d5w d5ns d5lr lr sw swfi".split())  # behind a drug: what it is given in
AMOUNTS = frozenset("gram grams mcg meq mg mmole".split())  # units whose numbers `STRENGTH` has taken away
IDLE = (FORMS | PACKS | AMOUNTS | RESIDUES | ROUTES) - PREPOSITIONS
# Parts of names that look like an amount or a form: of an acid, a concentrated or mixed insulin, a molecule's size.
NAME_PARTS = re.compile(
    r"\b(?:fat|lipid)\Wemulsion\b|\bomega\W?\d\b|\bu-?[1-5]00\b|\b(?:glycol|peg)\W?\d{4}\b|"
    r"\bdextran\W?\d+\b(?!\s*(?:%|m?g\b|ml\b))|\bno\.\W?\d+\b|"
    r"\b(?:insulin|humulin|novolin|nph|isophane|regular|human|mix)\W(?:70\W30|75\W25|50\W50)\b",
    re.I,
)
TIE = "\u2423"  # a blank inside what is one word here


def order_text(text: str) -> str:
    """An order in the chart's own words, without amounts, packs, routes and forms; as it is where nothing is left.

    "473 ml - chlorhexidine gluconate 0.12 % mt soln" becomes "chlorhexidine gluconate". What stands in brackets stays
    whole, but for amounts, where one word of it says more than a form: "glucagon (human recombinant)".
    """
    bare = re.sub(r"\*+[^*]*\*+|<<|>>", " ", text)
    bare = re.sub(r"\(([^()]*)\)", lambda bracket: _bracket(bracket[1]), bare)
    bare = NAME_PARTS.sub(lambda name: name[0].replace(" ", TIE), bare)
    bare = _without_amounts(bare)
    words = re.sub(  # "hydrocodone 5 mg-acetaminophen 325 mg", "dorzolamide 2%/timolol", and not "vancomycin 1 g -iv"
        r"(?<=[A-Za-z)])\s+(-|/\s*)([A-Za-z]\w*)",
        lambda more: more[0] if plain(more[2]) in IDLE | VEHICLE_WORDS else f"{more[1].strip()}{more[2]}",
        bare,
    ).split()
    kept: list[str] = []
    for i, word in enumerate(words):
        if plain(word) in PREPOSITIONS:
            following = words[i + 1] if i + 1 < len(words) else ""
            if kept and _names_substance(following):
                kept.append(word)
        elif _names_substance(word):
            kept.append(word)
    while len(kept) > 1 and set(plain(kept[-1]).split()) <= VEHICLE_WORDS | PREPOSITIONS | AMOUNTS:
        kept.pop()
    short = " ".join(kept).replace(TIE, " ").strip(" -:;,./%")
    short = short if short.count("(") == short.count(")") else " ".join(re.sub(r"[()]", " ", short).split())
    return short if re.search("[a-z]{3}", short.lower()) else text


def _bracket(inner: str) -> str:
    """A bracket as one word without amounts, a blank where it holds nothing but forms, packs and numbers."""
    inner = STRENGTH.sub(lambda amount: " " if re.search("[a-z%]", amount[0], re.I) else amount[0], inner)
    inner = re.sub(r"^[\s\d.,/-]+(?=[a-z])", "", " ".join(inner.split()), flags=re.I)  # "(90 base)"
    return f"({inner.replace(' ', TIE)})" if _names_substance(inner) else " "


def _without_amounts(text: str) -> str:
    """A text without amounts, but for numbers in brackets, in names and in "23-valent"."""
    names = [name.span() for name in re.finditer(rf"{NAME_PARTS.pattern}|\([^()]*\)", text, re.I)]

    def blank(amount: re.Match[str]) -> str:
        is_name = any(start <= amount.start() < end for start, end in names)
        return amount[0] if is_name or text.startswith("-val", amount.end()) else " "

    return STRENGTH.sub(blank, text)


def _names_substance(word: str) -> bool:
    """Whether a word has a part that is no form, pack, route or number, or is a name with a number."""
    return bool(NAME_PARTS.search(word)) or any(part not in IDLE and not part.isdigit() for part in plain(word).split())


def ingredient(name: str, has: Callable[[str], bool]) -> tuple[str, str] | None:
    """The words of an order that name its first ingredient, and the substance's name that `has` knows.

    A brand counts as its ingredient. Of several ingredients the first one counts, those in which drugs are dissolved
    last; of names that begin at one word the longest. None where none is known.
    """
    matches = list(_ingredients(name, has))
    return min(matches, key=lambda pair: pair[1] in VEHICLES, default=None)


def _ingredients(name: str, has: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """Substances in the order of the text."""
    words = plain(STRENGTH.sub(" ", name)).split()
    i = 0
    while i < len(words):
        lengths = range(min(5, len(words) - i), 0, -1)
        spans = ((length, " ".join(words[i : i + length])) for length in lengths)
        hit = next(((length, span, key) for length, span in spans if (key := substance(span, has))), None)
        if hit is None:
            i += 1
            continue
        yield hit[1], hit[2]
        i += hit[0]


def substance(span: str, has: Callable[[str], bool]) -> str | None:
    """DrugBank's name of what a span of words names, None where it names no substance."""
    if span in OTHER_WORDS or span in FORMS or span in SALTS or len(span) < SHORTEST:
        return None
    for table in (BRANDS, SUBSTANCES):
        if span in table and has(table[span]):
            return table[span]
    return span if has(span) else None
