"""push and pull over a folder and over a fake hub on this machine."""

import sys
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants

from dcnn import artifact as model_folder
from dcnn.errors import FetchError, MissingExtraError, ModelFolderError, StorageError, UserError
from dcnn.hub import pull, push
from dcnn.predictor import Predictor
from fake_hub import TOKEN, hub_over

TEXTS = ["the plot is not dull", "very bad", ""]


@pytest.fixture
def model(tmp_path, artifact):
    model_folder.save(tmp_path / "model", artifact)
    return tmp_path / "model"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    with hub_over(tmp_path / "hub") as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.address)
        monkeypatch.setattr(
            constants,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            running.address + "/{repo_id}/resolve/{revision}/{filename}",
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        yield running


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("place", ["me/model", "folder"])
def test_pull_gives_what_was_pushed(hub, model, tmp_path, place):
    place = place.replace("folder", str(tmp_path / "shared" / "model"))
    push(model, place)
    pulled = pull(place, tmp_path / "back")
    there, here = contents(tmp_path / "back"), contents(model)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        assert there[name] == here[name]
    assert there.keys() == here.keys()
    expected = Predictor.load(model).probabilities(TEXTS)
    assert (Predictor(pulled.artifact).probabilities(TEXTS) == expected).all()
    assert model_folder.is_model_folder(tmp_path / "back")


def test_push_makes_one_commit_and_returns_its_address(hub, model, tmp_path):
    place = push(model, "me/model", message="First")
    assert place == f"{hub.address}/me/model/commit/{hub.sha('me/model')}"
    commits = [asked for asked in hub.asked if "/commit/" in asked]
    assert commits == ["POST /api/models/me/model/commit/main"]
    pulled = pull("me/model", tmp_path / "back")
    assert pulled.origin == f"me/model at {hub.sha('me/model')[:12]}"


def test_the_card_on_the_hub_has_the_pull_command(hub, model):
    push(model, "me/model")
    card = (hub.folder("me/model") / "README.md").read_text()
    assert "dcnn pull me/model --out model\n" in card


def test_a_card_edited_by_hand_is_kept(hub, model):
    (model / "README.md").write_text("---\nlicense: mit\n---\n\n# Mine\n")
    push(model, "me/model")
    assert (hub.folder("me/model") / "README.md").read_text().startswith("---\nlicense: mit\n---\n")
    (model / "README.md").write_text("# Mine, without metadata\n")
    push(model, "me/model")
    card = huggingface_hub.ModelCard((hub.folder("me/model") / "README.md").read_text())
    assert card.data.pipeline_tag == "text-classification"
    assert card.text.strip() == "# Mine, without metadata"
    (model / "README.md").unlink()
    push(model, "me/model")
    assert "# model" in (hub.folder("me/model") / "README.md").read_text()


def test_branches_hold_different_models(hub, model, tmp_path, artifact):
    push(model, "me/model")
    other = tmp_path / "other" / "model"
    model_folder.save(other, artifact)
    (other / "README.md").write_text("# Second\n")
    push(other, "me/model", revision="second")
    assert "# Second" not in (hub.folder("me/model") / "README.md").read_text()
    pull("me/model", tmp_path / "back", revision="second")
    assert "# Second" in (tmp_path / "back" / "README.md").read_text()


def test_private_is_refused_for_a_public_repository(hub, model):
    push(model, "me/hidden", private=True)
    assert hub.private == {"me/hidden"}
    push(model, "me/hidden", private=True)
    push(model, "me/open")
    before = hub.sha("me/open")
    (model / "README.md").write_text("# Secret\n")
    with pytest.raises(UserError, match="me/open exists and is public"):
        push(model, "me/open", private=True)
    assert hub.sha("me/open") == before


@pytest.mark.parametrize("place", ["me/model", "folder"])
def test_only_the_files_of_a_model_folder_are_transferred(hub, model, tmp_path, place):
    place = place.replace("folder", str(tmp_path / "shared" / "model"))
    push(model, place)
    shared = Path(place) if Path(place).is_absolute() else hub.folder(place)
    for name in ("modeling.py", "pickle.bin"):
        (shared / name).write_text("raise SystemExit")
    (model / "notes.txt").write_text("mine")
    pull(place, tmp_path / "back")
    assert model_folder.is_model_folder(tmp_path / "back")
    assert not any("modeling" in asked for asked in hub.asked if "resolve" in asked)


@pytest.mark.parametrize("place", ["me/model", "folder"])
def test_a_damaged_model_is_named_and_nothing_is_written(hub, model, tmp_path, place):
    place = place.replace("folder", str(tmp_path / "shared" / "model"))
    push(model, place)
    push(model, str(tmp_path / "before"))
    shared = Path(place) if Path(place).is_absolute() else hub.folder(place)
    weights = shared / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    before = contents(tmp_path / "before")
    with pytest.raises(ModelFolderError) as caught:
        pull(place, tmp_path / "before", overwrite=True)
    assert str(caught.value).startswith(place)
    assert "cannot be used: model.safetensors is damaged" in str(caught.value)
    assert contents(tmp_path / "before") == before
    (shared / "config.json").unlink()
    with pytest.raises(ModelFolderError, match=r"holds no model.*config\.json"):
        pull(place, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model", "'model' is neither OWNER/NAME"),
        ("a/b/c", "begin a folder with ./ or /"),
        ("-a/b", "neither OWNER/NAME"),
        ("hf://a/b", "neither OWNER/NAME"),
        ("./nowhere", "nowhere: no such model folder"),
        ("nobody/nothing", "nobody/nothing: the hub has no such model, or hides it from you"),
        ("me/--double", "me/--double is no name|neither OWNER/NAME"),
    ],
)
def test_an_unknown_name_is_refused(hub, tmp_path, name, message):
    with pytest.raises(UserError, match=message):
        pull(name, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_an_unknown_revision_is_named(hub, model, tmp_path):
    push(model, "me/model")
    with pytest.raises(UserError, match="me/model has no revision 'v9'"):
        pull("me/model", tmp_path / "back", revision="v9")


def test_options_of_the_hub_are_refused_for_a_folder(model, tmp_path):
    with pytest.raises(UserError, match="--message is for the Hugging Face hub"):
        push(model, str(tmp_path / "there"), message="of May")
    assert not (tmp_path / "there").exists()
    with pytest.raises(UserError, match="--revision is for the Hugging Face hub"):
        push(model, str(tmp_path / "there"), revision="v2")
    with pytest.raises(UserError, match="--private is for the Hugging Face hub"):
        push(model, str(tmp_path / "there"), private=True)


def test_what_is_not_a_model_folder_is_never_replaced(model, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("years")
    with pytest.raises(UserError, match="is left alone"):
        push(model, str(tmp_path / "precious"))
    with pytest.raises(UserError, match="is left alone"):
        pull(str(model), tmp_path / "precious", overwrite=True)
    with pytest.raises(UserError, match="--overwrite"):
        pull(str(model), model)


def test_push_needs_a_valid_token(hub, model, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "of another")
    with pytest.raises(UserError, match=r"does not accept your token.*hf auth login"):
        push(model, "me/model")
    monkeypatch.delenv("HF_TOKEN")
    hub.asked.clear()
    with pytest.raises(UserError, match=r"needs a token of the hub; log in with `hf auth login`"):
        push(model, "me/model")
    assert not hub.asked


@pytest.mark.parametrize(
    ("failure", "kind", "message"),
    [
        ((500, ""), FetchError, r"the hub failed on me/model \(500\); try again later"),
        ((403, "GatedRepo"), UserError, "open only to those who accept its terms"),
        ((403, ""), UserError, "use a token with write access"),
    ],
)
def test_errors_of_the_hub_are_explained(hub, model, tmp_path, failure, kind, message):
    hub.failure = failure
    with pytest.raises(kind, match=message):
        pull("me/model", tmp_path / "back")


def test_a_foreign_repository_and_a_broken_card_are_refused(hub, model):
    with pytest.raises(UserError, match=r"refuses you/model to your token.*not of this family"):
        push(model, "you/model")
    (model / "README.md").write_text("---\nnot: [valid\n---\n")
    with pytest.raises(UserError, match=r"does not accept the model card .* fix README\.md in"):
        push(model, "me/model")


def test_an_unreachable_hub_is_reported(monkeypatch, tmp_path):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(FetchError, match=r"hub cannot be reached \(.*check the network"):
        pull("me/model", tmp_path / "back")


def test_a_missing_extra_is_named(monkeypatch, model, tmp_path):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"Pulling .* needs the extra 'hub': pip install"):
        pull("me/model", tmp_path / "back")
    with pytest.raises(MissingExtraError, match=r"Pushing .* needs the extra 'hub': pip install"):
        push(model, "me/model")
    push(model, str(tmp_path / "there"))  # which needs no client


def test_a_failed_write_is_named(model, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="could not be written"):
        push(model, str(tmp_path / "file" / "there"))
