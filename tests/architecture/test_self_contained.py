"""The repository stands alone: no path of somebody's machine, no host of a package registry."""

from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

# Written in pieces, so that this file does not contain what it looks for.
FORBIDDEN = [
    "/" + "work/",
    "../" + "shared",
    "pypi." + "org",
    "files.python" + "hosted",
    "registry.npm" + "js",
    "download.py" + "torch",
    "deb.deb" + "ian",
    "archive.ub" + "untu",
]


def test_no_text_names_a_machines_path_or_a_registry_host(repository_files: list[Path]) -> None:
    contents = {str(path): (REPOSITORY / path).read_bytes() for path in repository_files}
    assert [f"{path}: {word}" for path, data in contents.items() for word in FORBIDDEN if word.encode() in data] == []


def test_the_licence_is_whole_and_named_in_the_package() -> None:
    licence = (REPOSITORY / "LICENSE").read_text()
    assert "Apache License" in licence
    assert "END OF TERMS AND CONDITIONS" in licence
    assert 'license = "Apache-2.0"' in (REPOSITORY / "pyproject.toml").read_text()
