"""What setup.cfg cannot say: conf/ of a clone is launch/conf of an installation."""

from setuptools import find_packages, setup

CODE = ["ghar*", "envs*", "rewards*", "trainers*", "launch*"]

setup(packages=[*find_packages(include=CODE), "launch.conf"], package_dir={"launch.conf": "conf"})
