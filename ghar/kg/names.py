"""Comparing names: diagnoses, phenotypes and drugs are written differently in records and in the graph."""

from __future__ import annotations

import re
import unicodedata

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

STRENGTH = re.compile(
    r"\b\d[\d.,/]*\s*(%|mg|mcg|g|gm|kg|ml|l|meq|mmol|mm|units?|iu|mu|unt|hr|h|dose|puffs?)?(/\d*\s*\w+)?(?=\W|$)", re.I
)


def plain(text: str) -> str:
    """Lower case, no accents, no possessive, everything but letters and digits one space."""
    text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c)).lower()
    return " ".join(re.findall(r"[a-z0-9]+", text.replace("'s", "")))


def disease_key(name: str) -> str:
    """Equal for names that say the same in another order: sorted words without fillers ("" when nothing is left).

    "Hypertension, essential" and "essential hypertension (disease)" share a key.
    """
    return " ".join(sorted({word for word in plain(name).split() if word not in FILLERS}))


def drug_candidates(name: str) -> list[str]:
    """Readings of a prescribed drug, most literal first: as written; without strength, form and brackets; without
    salts. "Metoprolol Tartrate 25mg Tab" gives "metoprolol tartrate 25mg tab", "metoprolol tartrate", "metoprolol"."""
    bare = re.sub(r"\([^)]*\)|\[[^]]*\]|\*[^*]*\*", " ", name)
    kept = [word for word in plain(STRENGTH.sub(" ", bare)).split() if word not in FORMS]
    unsalted = [word for word in kept if word not in SALTS]
    readings = [plain(name), plain(bare), " ".join(kept), " ".join(unsalted)]
    readings += [SYNONYMS[reading] for reading in readings if reading in SYNONYMS]
    return [reading for reading in dict.fromkeys(readings) if reading]
