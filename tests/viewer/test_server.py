"""What the page is told and shown."""

import io

import numpy as np
import pytest
import tifffile
from drawn_results import write_nuclei
from PIL import Image
from starlette.testclient import TestClient

from dsfcnn.inference.objects import Classification
from dsfcnn.viewer.server import make_app

from .conftest import SIZE, described, key_of, write_pyramid
from .test_objects import unpacked


def picture(reply):
    assert reply.status_code == 200, reply.text
    return np.asarray(Image.open(io.BytesIO(reply.content)))


def test_the_list(client):
    found = client.get("/api/results").json()
    assert found["folder"] == "out"
    assert [(one["name"], one["task"], one["objects"]) for one in found["results"]] == [
        ("damaged", "nuclei", 20),
        ("good", "nuclei", 700),
        ("heat", "tumour", 35 * 47 - 35),
        ("lost", "nuclei", 20),
        ("piece", "nuclei", 3),
    ]
    assert found["failures"] == [{"name": "bad", "reason": "bad: <b>damaged</b>; get it again"}]


def test_a_result(client):
    found = described(client, key_of(client, "good"))
    assert found["messages"] == {}
    assert (found["width"], found["height"], found["firstLevel"], found["fullLevel"]) == (*SIZE, 9, 11)
    assert (found["slide"], found["tissue"], found["heats"], found["objects"]) == (True, True, ["probability"], 700)
    assert found["classes"] == [{"name": "Nucleus", "colour": "#2ca02c", "count": 700}]
    assert found["mpp"] == 0.25
    assert "Area um^2" in found["measurements"]


def test_tiles_of_the_slide_show_their_place(client):
    key = key_of(client, "good")
    described(client, key)
    for level, x, y in ((11, 0, 0), (11, 2, 2), (11, 1, 0), (10, 1, 1), (9, 0, 0)):
        reply = client.get(f"/api/results/{key}/tiles/slide/{level}/{x}/{y}")
        assert reply.headers["content-type"] == "image/jpeg"
        assert "immutable" in reply.headers["cache-control"]
        shown = picture(reply).astype(float)
        scale = 2 ** (11 - level)
        rows, columns = ((np.arange(side) + 0.5) * scale + 512 * scale * place for side, place in zip(shown.shape, (y, x)))
        inner = slice(4, -4)  # at the slide's edge a little white is mixed in
        assert np.abs(shown[..., 0] - (columns * 255 / SIZE[0])[None])[inner, inner].max() < 5
        assert np.abs(shown[..., 1] - (rows * 255 / SIZE[1])[:, None])[inner, inner].max() < 5


def test_layers(client):
    key = key_of(client, "good")
    described(client, key)
    path = f"/api/results/{key}/tiles"
    tissue = picture(client.get(f"{path}/tissue/9/0/0"))
    assert (tissue[:, :180, 3] == 110).all()
    assert (tissue[:, 192:, 3] == 0).all()
    heat = picture(client.get(f"{path}/heat-0/9/0/0"))
    assert heat[137, 187, 3] > 230
    assert heat[5, 5, 3] < 10
    objects = client.get(f"{path}/objects/9/0/0")
    assert objects.headers["content-type"] == "image/png"
    outlines = client.get(f"{path}/objects/11/1/0")
    assert outlines.headers["content-type"] == "application/octet-stream"
    numbers = unpacked(outlines.content)[0]
    whole = unpacked(client.get(f"{path}/objects/14/10/1").content)[0]  # finer than the slide
    assert 0 < len(whole) < 8
    assert set(whole) <= set(numbers)


def test_an_object_by_place_and_by_number(client):
    key = key_of(client, "good")
    described(client, key)
    first = client.get(f"/api/results/{key}/objects/1").json()["object"]
    left, top, width, height = first["box"]
    at = client.get(f"/api/results/{key}/at", params={"x": left + width / 2, "y": top + height / 2}).json()["object"]
    assert at == first
    assert (first["class"], first["id"]) == ("Nucleus", "00000000-0000-0000-0000-000000000001")
    assert first["measurements"]["Area um^2"] > 5
    assert len(first["outline"][0]) > 10
    assert client.get(f"/api/results/{key}/at", params={"x": 1499, "y": 1099}).json() == {"object": None}
    for number in (0, -1, 701, 10**30):
        assert client.get(f"/api/results/{key}/objects/{number}").status_code == 404
    for x in ("nan", "inf", "1e400", "", "a"):
        assert client.get(f"/api/results/{key}/at", params={"x": x, "y": 1}).status_code == 404
    assert client.get(f"/api/results/{key}/at").status_code == 404
    assert client.get(f"/api/results/{key}/at", params={"x": 1e300, "y": -5}).json() == {"object": None}


def test_the_histogram_counts_every_object(client):
    key = key_of(client, "good")
    names = described(client, key)["measurements"]
    for column, name in enumerate(names):
        found = client.get(f"/api/results/{key}/histograms/{column}").json()
        assert found["name"] == name
        assert sum(found["counts"]) == 700
        assert found["edges"][0] <= found["median"] <= found["edges"][-1]
    assert client.get(f"/api/results/{key}/histograms/0").json()["edges"][0] == 0  # areas begin at none
    for column in (-1, len(names), "x"):
        assert client.get(f"/api/results/{key}/histograms/{column}").status_code == 404


def test_tumour_has_cells_and_heat(client):
    key = key_of(client, "heat")
    found = described(client, key)
    assert [one["name"] for one in found["classes"]] == ["Normal", "Tumour"]
    assert found["slide"]  # under another name
    heat = picture(client.get(f"/api/results/{key}/tiles/heat-0/11/0/0"))
    assert np.ptp(heat[:32, :32], axis=(0, 1)).max() == 0
    at = client.get(f"/api/results/{key}/at", params={"x": 1400, "y": 1090}).json()["object"]
    assert at["class"] == "Tumour"
    assert at["measurements"]["Probability Tumour"] > 0.9


def test_an_image(client):
    key = key_of(client, "piece")
    found = described(client, key)
    assert (found["firstLevel"], found["fullLevel"], found["objects"]) == (7, 7, 3)
    shown = picture(client.get(f"/api/results/{key}/tiles/slide/7/0/0"))
    assert shown.shape == (90, 120, 3)
    assert np.abs(shown.astype(int) - (200, 120, 160)).max() < 4


def test_a_lost_slide_is_said_and_its_overlay_stands_in(client):
    key = key_of(client, "lost")
    found = described(client, key)
    assert "--slides" in found["messages"]["slide"]
    assert (found["slide"], found["objects"], found["heats"]) == (True, 20, ["probability"])
    shown = picture(client.get(f"/api/results/{key}/tiles/slide/11/1/1"))
    assert np.abs(shown.astype(int) - (10, 200, 30)).max() < 4


def test_a_damaged_slide_is_said_without_its_path_and_the_others_go_on(client, made):
    key = key_of(client, "damaged")
    found = described(client, key)
    assert "damaged.svs" in found["messages"]["slide"]
    assert str(made) not in str(found)
    assert (found["slide"], found["objects"]) == (False, 20)
    assert client.get(f"/api/results/{key}/tiles/slide/11/0/0").status_code == 404
    assert client.get(f"/api/results/{key}/tiles/objects/11/0/0").status_code == 200
    good = key_of(client, "good")
    described(client, good)
    assert client.get(f"/api/results/{good}/tiles/slide/11/0/0").status_code == 200


def test_damaged_parts_are_chequered(tmp_path):
    slide = tmp_path / "a.tif"
    write_pyramid(slide)
    with tifffile.TiffFile(slide) as file:
        place = file.pages[0].dataoffsets[1]  # 256 to 512 across, the first row
    content = bytearray(slide.read_bytes())
    content[place : place + 40] = bytes(40)
    slide.write_bytes(content)
    write_nuclei(tmp_path / "out" / "a", slide, SIZE, 5)
    with TestClient(make_app(tmp_path / "out", [slide]), base_url="http://localhost") as client:
        key = key_of(client, "a")
        assert described(client, key)["messages"] == {}
        shown = picture(client.get(f"/api/results/{key}/tiles/slide/11/0/0")).astype(int)
    assert np.ptp(shown[40:200, 300:480, 0]) > 40
    assert np.abs(shown[40:200, 300:480] - shown[40:200, 300:480].mean(2, keepdims=True)).max() < 4  # grey
    assert np.abs(shown[:200, :250, 2] - 90).max() < 5


def test_files_that_are_missing_or_damaged_are_said_one_by_one(copied):
    out = copied / "out"
    (out / "good" / "nuclei.geojson.gz").write_bytes(b"{}")
    (out / "good" / "probability.tif").write_bytes(b"II*\0" + bytes(40))
    (out / "good" / "tissue_mask.png").write_bytes(b"no picture")
    (out / "lost" / "nuclei.geojson.gz").unlink()
    with TestClient(make_app(out, [copied / "slides"]), base_url="http://localhost") as client:
        found = described(client, key_of(client, "good"))
        assert set(found["messages"]) == {"heat", "tissue", "objects"}
        assert str(copied) not in str(found["messages"])
        assert (found["slide"], found["objects"], found["classes"]) == (True, None, [])
        key = key_of(client, "good")
        assert client.get(f"/api/results/{key}/tiles/slide/11/0/0").status_code == 200
        assert client.get(f"/api/results/{key}/tiles/objects/11/0/0").status_code == 404
        assert client.get(f"/api/results/{key}/at?x=5&y=5").json() == {"object": None}
        assert "predict" in described(client, key_of(client, "lost"))["messages"]["objects"]


def test_offsets_of_slides_with_bounds(tmp_path):
    write_nuclei(tmp_path / "a", None, SIZE, 30, bounds=(200, 100))
    with TestClient(make_app(tmp_path), base_url="http://localhost") as client:
        key = key_of(client, "a")
        described(client, key)
        left, top, _, _ = client.get(f"/api/results/{key}/objects/1").json()["object"]["box"]
    assert 0 <= left < 20
    assert 0 <= top < 20


def test_text_of_files_stays_text(tmp_path):
    words = '<img src=x onerror="alert(1)">'
    write_nuclei(tmp_path / "a", None, SIZE, 3, classification=Classification(words, "#ff0000"), name=words)
    with TestClient(make_app(tmp_path), base_url="http://localhost") as client:
        reply = client.get(f"/api/results/{key_of(client, words)}")
        assert reply.headers["content-type"] == "application/json"
        assert described(client, key_of(client, words))["classes"][0]["name"] == words


def test_results_are_closed_when_others_are_opened(made, monkeypatch):
    monkeypatch.setattr("dsfcnn.viewer.server._OPEN", 1)
    with TestClient(make_app(made / "out", [made / "slides"]), base_url="http://localhost") as client:
        for name in ("good", "heat", "good"):
            key = key_of(client, name)
            described(client, key)
            assert client.get(f"/api/results/{key}/tiles/slide/11/1/1").status_code == 200


def test_a_study(client):
    key = key_of(client, "turning", "studies")
    found = client.get(f"/api/studies/{key}").json()
    assert (found["angles"], found["side"]) == ([0, 90, 180, 270], 8)
    plain, classes = found["models"]
    assert [(one["name"], one["row"]) for one in plain["maps"]] == [("A", 1), ("object", 2)]
    assert (classes["maps"][0]["row"], classes["maps"][0]["probabilities"][0]) == (None, [0.25, 0.75])
    strip = picture(client.get(f"/api/studies/{key}/strips/1"))
    assert strip.shape == (8, 32, 3)
    assert strip[0, ::8, 0].tolist() == [40, 50, 60, 70]
    for row in (-1, 3, "x", 10**30):
        assert client.get(f"/api/studies/{key}/strips/{row}").status_code == 404


def test_a_study_that_makes_no_sense(copied):
    study = copied / "out" / "turning"
    Image.new("RGB", (8, 8)).save(study / "frames.png")
    with TestClient(make_app(copied / "out"), base_url="http://localhost") as client:
        reply = client.get(f"/api/studies/{key_of(client, 'turning', 'studies')}/strips/0")
    assert (reply.status_code, "again" in reply.json()["message"]) == (422, True)
    assert str(copied) not in reply.text
    (study / "variance.json").write_text('{"frames": {"rows": []}}')
    with TestClient(make_app(copied / "out"), base_url="http://localhost") as client:
        assert client.get(f"/api/studies/{key_of(client, 'turning', 'studies')}").status_code == 422


@pytest.mark.parametrize("kind", ["results", "studies"])
def test_what_is_not_there(client, kind):
    for key in ("0" * 16, "good", "..", "%2e%2e", "x" * 5000):
        reply = client.get(f"/api/{kind}/{key}")
        assert reply.status_code == 404
        assert list(reply.json()) == ["message"]
