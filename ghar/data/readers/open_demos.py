"""The published open demos, by what is in them. Only hashes stand here, no data.

A table is known by the sha256 of its file as PhysioNet lists it (SHA256SUMS.txt of each demo) or of its CSV text,
unpacked; so a table may be packed another way, but not changed. MIMIC-III's chartevents and labevents have a second
sum each, of copies whose cells have no blanks at their ends, and eICU's lab one of the rows of 174 stays that PyHealth
tests with. Patients (in eICU ICU stays) are known by the sha256 of their ids, ascending, one a line.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from ghar.data.readers.tables import find_table, open_table
from ghar.errors import BadInput

LARGEST = 1 << 28  # bytes of a file of a demo, at most: what is larger need not be read to know
CHUNK = 1 << 20


@dataclass(frozen=True)
class Demo:
    """title; the table and column of its ids, and their sum; sums that each table may have."""

    title: str
    table: str
    column: str
    ids: str
    sums: Mapping[str, tuple[str, ...]]


DEMOS = {
    "mimic4": Demo(
        "PhysioNet mimic-iv-demo 2.2",
        "hosp/patients",
        "subject_id",
        "97c0e3206fc6027379912d899a104e8055789d93365ec892f77a2d43d2127fe9",
        {
            "hosp/patients": (
                "59dcc6cd8450ddf03ad32cc7d76e41caa4c9633541715987f590c74835cf6fae",
                "d6f7f45cad83a977cfe40cf80572ad13df3970071c5f91bf2fd319c3903516f0",
            ),
            "hosp/admissions": (
                "910b9f160ffdf1e08ea673585393f347c773ccc87d66875c627584a903ae8493",
                "b08247c945ce0c69c505cf3427c6442135b89d9ea6315a89d4adb7b1733ce1d4",
            ),
            "hosp/diagnoses_icd": (
                "958565670c0b3903c0c12825366dc2bae8561d2d55f16feac0c949dd630ed3e4",
                "ffb493244933ae7e1cbb17183f78a2e65625bd253489c01d376bfdc49df774af",
            ),
            "hosp/procedures_icd": (
                "68f21dcba9ae0c4b7faa3ef38aa950a8ebeb6d167bc74416314dccdcf28674e0",
                "03161547a84ac86657f27c4fedd5d5f1e1b391b29e3faa53a6e6171e141b9fb6",
            ),
            "hosp/prescriptions": (
                "33c392ba5b9299b08eca0a61911ba106f0aebdba26ed31b856bb9ffd49fe3654",
                "3865f9f13bec8bdfa6eca6205d26d1a55c40051a5c7d396609a68e532775db9d",
            ),
            "hosp/omr": (
                "6d7c69dbb2c79b9d1de7d1e68f3424ad248821d7c074dc6537d7290774af39b9",
                "64a75e495f3c85b16981c94fe72c4818f8dd67eeff534604a12d5f974c9c938f",
            ),
            "hosp/microbiologyevents": (
                "fa462443cc5777ebf9d833f71c67f2a89b4a074eb376320da70bed220e918ad4",
                "2a26301e17a1d0b1ab9dabc76fc180a19b19bcd612eb055f699b5a415461fc80",
            ),
            "hosp/emar": (
                "f14a4b5597abcc2e8d62d291c7839347ef6260d4c548ea534ab62df6b2f49adc",
                "ab8c5661c454edb2d0626e08b21e94585e72ee6e0e45bee22cfa89908117236d",
            ),
            "hosp/labevents": (
                "d51a4cf1ea63245abe7d544b0d50a928e9ee2ec5eb9a5ce85500aed0bd6c6dfc",
                "f3feb488a9b7c6039e47a30d4f0ff9cd869fedf0e02df6c250d7405c0db1a8d9",
            ),
            "hosp/d_icd_diagnoses": (
                "0f715a3c4c5e44400305d4deb86ff648e499a3bfcb946f353e8b030022d3ec06",
                "e1eaafe3916f25cb2162dc95c31c280d834434531afa3a91b40bdf9943e58d2b",
            ),
            "hosp/d_icd_procedures": (
                "a921a20fbf3220e2a7fe874d6392d671c1cc769a001ef0a7841b80eb01030bb6",
                "ce5e256bc06ff8e2071e190799fe3bb99bd58be4d66d6b81276d61bfe9f65688",
            ),
            "hosp/d_labitems": (
                "72ea5f020469fd24543bd98ab3bd0a4f645a5a4b7802d9d52af20d736f9d76db",
                "6a758494be345531d17ff3f2efcb0fefad78e7bfce83a4168f4ab5132e148856",
            ),
            "icu/icustays": (
                "e05e81aa52a3022e522b6832a898101a69b84e64c17bb344d819e458d5bc21b3",
                "9a79a759372a6075560a0dcf53d10122e691a8a4dce7141101f6660ab8476f42",
            ),
            "icu/inputevents": (
                "69597dca47e554e16645ca505167e9f39b07c1724e915ba54ccfb40f5fa0078a",
                "34ff7b19dbdfdf4608c4de3ad589a4b1624f6e767a09cd5489fe6d2448e4edfd",
            ),
            "icu/outputevents": (
                "3bcf68adaa11070d6c24e13d4bfaaf718606cd33b0df7f28e0de240c357a869e",
                "afdafb80d6e7353ead549862acbbb93d8d96db08e8843e23ce36c6371ffc0134",
            ),
            "icu/d_items": (
                "1690467a822345226a041c1149237c418aa60098c6b699fb4cef64d73588a01f",
                "3a9ff93b12727ec17000896c144c03573bccae0f8f71d5d5c2ba773ebf7ffa5d",
            ),
            "hosp/transfers": (
                "41151539886d12d57159b65ffe4d7df5a7ef8ceb7cd113ea9a56fbfbfd78a87c",
                "75a8f8c8bcaecb57406bbec43aa1cffee72cf2b91195a949aa7f21426432da8b",
            ),
            "hosp/services": (
                "28306d68e952fe2cc9ef6e60b0afda93c27d7a06bee8ef39e71ccc4de5ded793",
                "78d0093c8829fa86dd1c1895128e62615d0da15a8faa4123f0ecfe00213dfcc7",
            ),
            "icu/chartevents": ("90f096ad3db847ed1aaec073f8d86053c51fea7b616d3b046410e030f083d560",),
        },
    ),
    "mimic3": Demo(
        "PhysioNet mimiciii-demo 1.4",
        "patients",
        "subject_id",
        "a9b6738884d48248e20e2d9ce6c4f3c784b5d234d12b18c9028ee3312e265671",
        {
            "patients": ("f65803a46bcb88127574bfd0b70d78d4123783d05bb411e70d4c9629edd7b703",),
            "admissions": ("487e0b87cc81472cc2eb9ee911b3493c39e15d32e8230cec559907060c009b1c",),
            "d_items": ("b4642d6d278987b5fb96c790bca02058c5f070accfa58c249100bda38a608089",),
            "inputevents_cv": ("471558d62d85f6841032840c753311bed3dc8a554bf1e36003cfeceabee1928c",),
            "inputevents_mv": ("5d66734bef2d8511009d43dd63a76948ac2490936ec86dfe64b966b37b2f1dab",),
            "outputevents": ("f8819ce33479da16b72c4e785ada17341e22ec9217d07bd5de94f1d09429f389",),
            "transfers": ("18a1d1bb282b94a082b2315e16b161536966de6f9b1a9dba1e415235336a5bdd",),
            "services": ("b2763945b6c33327b8cf93d31038dba39da2cf9b0c66d7d5535ed697fecd51cd",),
            "diagnoses_icd": ("74dc979906bc2172f0cf025271dcd44c7cd52506b297e4b36e63dd40dce923da",),
            "procedures_icd": ("0a1474dcb7e1bc083cc7b329257e5e85305f3e54ee5b0bedd325b3772806d655",),
            "prescriptions": ("053a015f55044550e4536def11df04432490c4a5ca3e1f380c30ac7e17f33fd3",),
            "icustays": ("455cd8fd014bd75d9d26ddf8cb116c77ecccee2fe35fea342801a631d94b387b",),
            "labevents": (
                "bca32a7242e739c0cbf1690270db83c10e38a27dbfa915eeb14f5a31a1e898fa",
                "cfc0be3aefb87417282f65f18108baeddab19624b0bc1051c5419398ae045ca1",
            ),
            "chartevents": (
                "734387d583daa9c339f9744ce6e58ed7387b99672898139c910f9aa3e40c31ec",
                "ac3333a8e80831942eb7d48bfea4bec69af0bb7be34e36e88f9c2f5cd1d53f6d",
            ),
            "d_icd_diagnoses": ("12c0b0b4b814557c018a630fff42521ed65c8b7491268e70f85cc246f0f27c9e",),
            "d_icd_procedures": ("7e05e07aeeb05105fce8732105baf9d767e66ec6b1f70bda29728ad456562021",),
            "d_labitems": ("c573653bd06915e48a5fb5f3db01d75554350ec1a628aa91d01ef36daa4eae7f",),
        },
    ),
    "eicu": Demo(
        "PhysioNet eicu-crd-demo 2.0.1",
        "patient",
        "patientunitstayid",
        "f6ee08982b741b695ebdc1170ec06d24a030f91bd1b4cff07c353c9a45ffdc5d",
        {
            "patient": (
                "15e1eb52169828e3cfff3b67132a087298de4d0365bbb31bb294f6043bffd474",
                "2ba8fc9b193cb26b74188362ab76f7a4b69a5094ac62a080595fa844d7f0f3a0",
            ),
            "infusiondrug": (
                "3b9f024d28682884a820763ac516ae68b247ebf17903fee4f38240c04886d527",
                "ef4b639cb3ee09dac530e4e230caed5782bb9dacddbbfb6b57bdde6df432e94c",
            ),
            "diagnosis": (
                "c99770c25fdeaee1eb34e490f982bd17459bc8902f951a2ae23adef65e7b1b52",
                "b1adeaffb438b8893e384cda045012b85ed8d960b1e011750c4ec181c76236e7",
            ),
            "treatment": (
                "daefee030fa1ad29593dce880ad86bdfbdbb1e33fcb3e78fa21d71cb01a08628",
                "d78809601962962a3e83e3bf361fc53a3fc7b6403fc81ba0cdb03526357d8c05",
            ),
            "medication": (
                "480a251570a27932110452f66f248061f712c306663c274f78f90875648cb720",
                "d7c4c1322783f6cf645ac6a3534bb3b58d009f4f081c11eb168f462834d72204",
            ),
            "lab": (
                "e06852850abeb65211bc22ac43f17121ba41b14656fac862396449af84d8273a",
                "826f8465e1bdc341bfeb1862a004ef131d306dcb9f21adebd5c712d5eacd2474",
            ),
            "vitalperiodic": ("04dc093a2e77cd4c52ac7f2a47a8356fbb7456c7f15deb20d5abb1ca4303231d",),
            "vitalaperiodic": (
                "c294f46647990cb648b3ebfa589e83f330bdc0c2c922b5e8f23aa0ef99954635",
                "006aa6a3509010c307c00e15f6d4e4b2f07a06a7a5ae9d788e5845be431a2f95",
            ),
            "nursecharting": ("475000d63d4ef883b2e891d7197997201300bedc13fcf23e67add1abee11dafe",),
            "respiratorycharting": (
                "21bfe647fea0a229d09ff04c775ec4270d20ae084131a987943da836df534235",
                "cf88477db592243c7b807757469a10cdc23616f34e28fb13771b9f39ec26b035",
            ),
        },
    ),
}
# MedQA (Jin et al. 2021), US, 4 options: phrases_no_exclude_test.jsonl
OPEN_FILES = ("c3b905ccfa66152dc25afbcb2c10e86c0bdb208824f0658fcdb2c040f60a2beb",)


def is_open_demo(source: str, root: Path, tables: Iterable[str]) -> bool:
    """Whether the `tables` of folder `root`, as far as they are there, are those of the open demo of `source`."""
    demo = DEMOS[source]
    try:
        rows = open_table(root, demo.table, {demo.column: pl.Int64()}).rows
        ids = "\n".join(str(number) for number in sorted(rows.collect()[demo.column].drop_nulls()))
    except (BadInput, pl.exceptions.PolarsError, OSError):
        return False  # the reader says what is wrong
    if hashlib.sha256(ids.encode()).hexdigest() != demo.ids:
        return False
    found = [(name, find_table(root, name)) for name in tables]
    return all(path is None or _known(path, demo.sums.get(name, ())) for name, path in found)


def is_open_file(path: Path) -> bool:
    """Whether a file, packed or not, is a published one that is about no patient: MedQA's test questions."""
    return path.is_file() and _known(path, OPEN_FILES)


def _known(path: Path, sums: tuple[str, ...]) -> bool:
    """Whether a file, or the text in it, has one of the sums."""
    if path.stat().st_size > LARGEST:
        return False
    whole, text = hashlib.sha256(), hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(CHUNK):
                whole.update(block)
        if whole.hexdigest() in sums:
            return True
        if path.suffix != ".gz":
            return False
        with gzip.open(path) as file:
            while block := file.read(CHUNK):
                text.update(block)
    except (OSError, EOFError, zlib.error):
        return False
    return text.hexdigest() in sums
