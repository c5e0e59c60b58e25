"""Comparing names: diagnoses, phenotypes and drugs are written differently in records and in the graph."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import filterfalse
from typing import Literal

# Words of code systems that name no disease of their own ("Heart failure, unspecified").
FILLERS = frozenset(
    "a an and as at by classifiable classified disease disorder elsewhere for in nec nos not of on or other "
    "otherwise site specified stated status the to type unspecified".split()
)

FORMS = frozenset(
    "aerosol bag bolus buffered cap caplet capsule capsules chew chewable concentrate cr cream crushed "
    "delayed desensitization disintegrating dose dr drip drops ec effervescent elixir emulsion enema enteric "
    "er extended flush foam for gel granules human im immediate in inhalation inhaler inj injectable "
    "injection ir iv jelly kit la liposomal liquid lotion lozenge mini mist nasal neb nebulizer odt ointment "
    "ophth ophthalmic oral otic packet partial paste patch pf piggyback po powder prefilled premix premixed "
    "preservative rectal release replacement scale shampoo sliding soln solution spray sr subcutaneous "
    "sublingual suppository susp suspension sustained swish syringe syrup tab tablet tablets topical "
    "transdermal vaginal vial wafer xl xr".split()
)

SALTS = frozenset(
    "acetate acetonide anhydrous besylate bitartrate bromide calcium chloride citrate dihydrate dipropionate "
    "disodium fumarate furoate gluconate hcl hemihydrate hyclate hydrobromide hydrochloride lactate magnesium "
    "maleate mesylate monohydrate mononitrate nitrate palmitate phosphate potassium propionate proxetil sod "
    "sodium succinate sulfate sulphate tartrate trihydrate tromethamine valerate xinafoate".split()
)

# Names that hospitals use and DrugBank does not.
SYNONYMS = {"aspirin": "acetylsalicylic acid"}

# What an amount is given in or by ("mg/ml"): any other word behind a slash is a second drug ("2%/timolol 0.5%").
PER = (
    "ml|dl|l|mg|mcg|g|gm|grams?|kg|meq|mmol|mmole|units?|iu|hrs?|hours?|h|min|minutes?|days?|d|wk|week|doses?|puffs?|"
    "act|actuations?|inh|inhalations?|sprays?|drops?|gtt|tabs?|tablets?|caps?|capsules?|patch|ea|each|vials?|amps?|"
    "bags?|syringes?|pkt|packets?|supp|btl|bottles?"
)
STRENGTH = re.compile(
    r"\b\d[\d.,/]*\s*(%|mg|mcg|g|gm|kg|ml|l|meq|mmol|mm|units?|iu|mu|unt|hr|h|dose|puffs?)?"
    rf"(/\s*(\d[\d.,]*)?\s*(ml\d+|{PER})(?=\W|$))*(?=\W|$)",
    re.I,
)


@lru_cache(maxsize=16384)  # an episode's reward and its row compare the same few names again and again
def plain(text: str) -> str:
    """Lower case, no accents, no possessive, everything but letters and digits one space."""
    if not text.isascii():  # most names are, and this takes most of the time
        text = "".join(filterfalse(unicodedata.combining, unicodedata.normalize("NFKD", text)))
    return " ".join(re.findall(r"[a-z0-9]+", text.lower().replace("'s", "")))


def disease_key(name: str) -> str:
    """Equal for names that say the same in another order: sorted words without fillers ("" when nothing is left).

    "Hypertension, essential" and "essential hypertension (disease)" share a key.
    """
    return " ".join(sorted({word for word in plain(name).split() if word not in FILLERS}))


def shared_words(text: str, name: str) -> Literal["name", "word", "none"]:
    """How much of a node's name a chart's text has: all its words but fillers, one of them, or none."""
    words, named = set(disease_key(text).split()), set(disease_key(name).split())
    if named and named <= words:
        return "name"
    return "word" if words & named else "none"


# Whole words of charts, in capitals, and what they stand for.
ABBREVIATIONS = {
    "AAA": "abdominal aortic aneurysm", "AF": "atrial fibrillation", "ALS": "amyotrophic lateral sclerosis",
    "ARDS": "acute respiratory distress syndrome", "CA": "cancer", "CAD": "coronary artery disease",
    "CHF": "congestive heart failure", "CKD": "chronic kidney disease",
    "COPD": "chronic obstructive pulmonary disease", "DIC": "disseminated intravascular coagulation",
    "DKA": "diabetic ketoacidosis", "DVT": "deep vein thrombosis", "ESRD": "end stage renal failure",
    "GERD": "gastroesophageal reflux disease", "GI": "gastrointestinal",
    "HIT": "heparin induced thrombocytopenia", "ITP": "immune thrombocytopenic purpura",
    "NSTEMI": "myocardial infarction", "SIADH": "inappropriate antidiuretic hormone secretion",
    "SLE": "systemic lupus erythematosus", "STEMI": "myocardial infarction", "TIA": "transient ischemic attack",
    "TTP": "thrombotic thrombocytopenic purpura", "UTI": "urinary tract infection",
}  # fmt: skip
# Words that mean the same in a name, and those that name a stage or a side and no disease of their own.
SAME_WORDS = {
    "renal": "kidney", "hepatic": "liver", "cardiac": "heart", "gastric": "stomach", "haemorrhage": "hemorrhage",
    "carcinoma": "cancer", "malignant": "cancer", "anaemia": "anemia", "tumour": "tumor", "oesophageal": "esophageal",
}  # fmt: skip
# What "malignant" calls severe, where it names no cancer.
SEVERE = re.compile(r"\b(hypertensi(on|ve)|hyperthermia|hyperpyrexia|neuroleptic|otitis|arrhythmia)", re.I)
STAGES = frozenset(
    "acute chronic subacute severe mild moderate symptomatic asymptomatic left right bilateral uncontrolled controlled "
    "suspected probable presumed possible recurrent persistent paroxysmal new onset stage syndrome".split()
)
ORGANS = frozenset(
    "aortic artery bone bowel brain colon ear eye heart hypertensive intestinal kidney liver lung skin spine stomach "
    "valve vein viral bacterial".split()
)
# Names that charts use, in the words of MONDO and HPO.
DISEASE_NAMES = {
    "sepsis": "bacterial infectious disease with sepsis", "septicemia": "bacterial infectious disease with sepsis",
    "severe sepsis": "bacterial infectious disease with sepsis",
    "septic shock": "bacterial infectious disease with sepsis", "hypotension": "hypotensive disorder",
    "ischemic stroke": "cerebral infarction", "hemorrhagic stroke": "intracerebral hemorrhage",
    "depression": "major depressive disorder", "drug withdrawal syndrome": "substance withdrawal syndrome",
    "end stage renal disease": "end stage renal failure", "coagulopathy": "blood coagulation disease",
    "c difficile colitis": "clostridium difficile colitis", "hypertension": "hypertensive disorder",
    "acute lung injury": "acute respiratory distress syndrome", "hyposmolality and or hyponatremia": "hyponatremia",
    "hypo osmolality and hyponatremia": "hyponatremia", "bronchospasm": "asthma",
    "hypokalemia": "potassium deficiency disease", "tobacco use disorder": "nicotine dependence",
    "shingles": "herpes zoster", "lower urinary tract infection": "cystitis",
    "acetaminophen overdose": "paracetamol poisoning",
}  # fmt: skip


def diagnosis_parts(description: str) -> list[str]:
    """Readings of a diagnosis, the whole first, then its parts between commas and slashes, the last one first.

    Charts write a path, "acute coronary syndrome, acute myocardial infarction (no ST elevation)", whose last part says
    most; titles of ICD write what is the case before "with" and "due to". What follows "without" is no finding.
    """
    bare = re.sub(r"\([^)]*\)|\[[^]]*\]", " ", description)
    bare = re.split(r"\b(?:without|w/o|not specified|history of|rule out|r/o)\b", bare)[0]
    bare = re.sub(r"\b[A-Z]{2,6}\b", lambda word: ABBREVIATIONS.get(word[0], word[0]), bare)
    parts = [part for part in re.split(r"[,;|]| / | - ", bare) if part.strip()]
    heads = [re.split(r"\b(?:with|due to|in|following|secondary to)\b", part)[0] for part in parts]
    return list(dict.fromkeys([bare, *reversed(parts), *reversed(heads)]))


def diagnosis_key(text: str) -> str:
    """`disease_key` with words that mean the same as one word, and singular."""
    text = DISEASE_NAMES.get(plain(text), text)
    words = (SAME_WORDS.get(word, word) for word in disease_key(text).split())
    return " ".join(sorted({_singular(word) for word in words}))


def names_organ(key: str) -> bool:
    """Whether a key is an organ, a cause or nothing: "intra-abdominal abscess, hepatic" is no liver disease."""
    return set(key.split()) <= ORGANS


def names_severity(part: str, description: str) -> bool:
    """Whether a part of a diagnosis is "malignant" alone and says how severe it is, as of hypertension."""
    return without_stage(disease_key(part)) == "malignant" and SEVERE.search(description) is not None


def without_stage(key: str) -> str:
    """A key without words that name a stage or a side; "" where nothing else is left."""
    return " ".join(word for word in key.split() if word not in STAGES)


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 4 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def drug_candidates(name: str) -> list[str]:
    """Readings of a prescribed drug, most literal first: as written; without strength, form and brackets; without
    salts. "Metoprolol Tartrate 25mg Tab" gives "metoprolol tartrate 25mg tab", "metoprolol tartrate", "metoprolol"."""
    bare = re.sub(r"\([^)]*\)|\[[^]]*\]|\*[^*]*\*", " ", name)
    kept = [word for word in plain(STRENGTH.sub(" ", bare)).split() if word not in FORMS]
    unsalted = [word for word in kept if word not in SALTS]
    readings = [plain(name), plain(bare), " ".join(kept), " ".join(unsalted)]
    readings += [SYNONYMS[reading] for reading in readings if reading in SYNONYMS]
    return [reading for reading in dict.fromkeys(readings) if reading]
