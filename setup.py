"""What setup.cfg cannot say: conf/, which holds no code, is a package too, and an index shows no files of the README's
links."""

import re
from pathlib import Path

from setuptools import find_packages, setup

LINK = re.compile(r"\[([^\]]+)\]\((?!https?://|#)[^)]+\)")
README = Path(__file__).with_name("README.md").read_text(encoding="utf-8")

setup(packages=[*find_packages(include=["ghar", "ghar.*"]), "ghar.conf"], long_description=LINK.sub(r"\1", README))
