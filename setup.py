"""What setup.cfg cannot say: conf/, which holds no code, is a package too."""

from setuptools import find_packages, setup

setup(packages=[*find_packages(include=["ghar", "ghar.*"]), "ghar.conf"])
