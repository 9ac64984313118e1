"""Builds the wheel of this package: pure Python, so that it is a zip archive with a few words about it (PEP 517, PEP 427)."""

import base64
import hashlib
import pathlib
import re
import tarfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAME = "sidecore"


def _project() -> dict:
    """Name, version and so on, as pyproject.toml says. (No tomllib before Python 3.11.)"""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = text.split("[project]", 1)[1]
    return dict(re.findall(r'^([a-z-]+) = "(.*)"$', section, re.MULTILINE))


def _metadata() -> str:
    project = _project()
    return (
        "Metadata-Version: 2.1\n"
        f"Name: {NAME}\n"
        f"Version: {project['version']}\n"
        f"Summary: {project['description']}\n"
        f"Requires-Python: {project['requires-python']}\n"
        "License: MIT OR Apache-2.0\n"
    )


WHEEL = "Wheel-Version: 1.0\nGenerator: sidecore_build\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def _write(path: pathlib.Path, files: dict) -> str:
    info = f"{NAME}-{_project()['version']}.dist-info"
    files = {**files, f"{info}/METADATA": _metadata().encode(), f"{info}/WHEEL": WHEEL.encode()}
    record = f"{info}/RECORD"
    lines = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            archive.writestr(name, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(content)}")
        archive.writestr(record, "\n".join([*lines, f"{record},,", ""]))
    return path.name


def _wheel_name() -> str:
    return f"{NAME}-{_project()['version']}-py3-none-any.whl"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """The package's files."""
    folder = ROOT / NAME
    files = {f"{NAME}/{path.name}": path.read_bytes() for path in folder.iterdir() if path.suffix in (".py", ".typed")}
    return _write(pathlib.Path(wheel_directory) / _wheel_name(), files)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """A file that names this folder (PEP 660)."""
    return _write(pathlib.Path(wheel_directory) / _wheel_name(), {f"{NAME}.pth": f"{ROOT}\n".encode()})


def build_sdist(sdist_directory, config_settings=None):
    """This folder."""
    base = f"{NAME}-{_project()['version']}"
    path = pathlib.Path(sdist_directory) / f"{base}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for part in ("pyproject.toml", NAME, "build_backend"):
            keep = lambda member: None if "__pycache__" in member.name else member  # noqa: E731
            archive.add(ROOT / part, f"{base}/{part}", filter=keep)
    return path.name
