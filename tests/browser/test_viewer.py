"""The viewer as somebody sees it."""

import re
from itertools import pairwise

import numpy as np
import pytest
from browsing import settle, wait, wait_for_result
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

REQUESTS = "return performance.getEntriesByType('resource').map((one) => one.name)"


def open_result(browser, address, name):
    open_page(browser, f"{address}#{name}")
    wait_for_result(browser, name)


def open_page(browser, address):
    browser.get("about:blank")  # else a change of the part behind "#" loads nothing anew
    browser.get(address)


def press(browser, *keys):
    ActionChains(browser).send_keys(*keys).perform()


def text(browser, name):
    return browser.find_element(By.ID, name).text


def tiles(browser, layer):
    """Levels of the tiles that were asked for."""
    return [int(name.split("/tiles/")[1].split("/")[1]) for name in browser.execute_script(REQUESTS) if f"/tiles/{layer}/" in name]


def mistakes(browser):
    """What the page did wrong, in the browser's opinion: errors, and what its policy forbids."""
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def stage(picture):
    """The slide without panel, tools and scale bar."""
    return picture[150:600, 150:900]


def green_along(picture, ring, place):
    """How much of an outline (places on the slide) has green pixels on the screen, as far as it is in view."""
    ends = np.array([*ring, ring[0]]) * place["scale"] + (place["left"], place["top"])
    points = np.concatenate([np.linspace(start, end, 5) for start, end in pairwise(ends)]).round().astype(int)
    rows, columns = np.clip(points[:, 1], 1, picture.shape[0] - 2), np.clip(points[:, 0], 1, 1030)
    near = np.stack([picture[rows + down, columns + across] for down in (-1, 0, 1) for across in (-1, 0, 1)])
    return ((near[..., 1] > near[..., 0] + 30) & (near[..., 1] > near[..., 2] + 30)).any(0).mean()


def test_a_slide_opens(browser, address, shot):
    open_result(browser, address, "drawn")
    seen = shot("slide")
    assert stage(seen).std(axis=(0, 1)).min() > 10
    assert re.fullmatch("3,008 . 2,000 px, 0.25 µm/px", text(browser, "status"))
    assert text(browser, "scale-text").endswith("µm")
    assert "Nucleus <b>" in text(browser, "legend")  # as text
    wait(browser, "document.querySelectorAll('#histogram rect').length === 40")
    listed = browser.find_elements(By.CSS_SELECTOR, "#results li")
    assert [one.text.split("\n")[0] for one in listed] == ["corrupt", "drawn", "lost", "turning", "bad <i>one</i>"]
    assert not browser.find_element(By.ID, "notice").is_displayed()
    assert all(name.startswith(address) for name in browser.execute_script(REQUESTS))  # nothing from elsewhere
    assert mistakes(browser) == []


def test_zooming_loads_tiles_and_turns_pictures_into_outlines(browser, address, shot):
    open_result(browser, address, "drawn")
    before, full = max(tiles(browser, "slide")), browser.execute_script("return window.dsfcnnView.info.fullLevel")
    scale = text(browser, "scale-text")
    assert before < full
    press(browser, "+" * 8)
    settle(browser)
    shot("zoomed")
    assert max(tiles(browser, "slide")) == full
    assert max(tiles(browser, "objects")) > full  # outlines are sharp beyond the slide's own pixels
    assert text(browser, "scale-text") != scale
    kinds = browser.execute_async_script(
        """const done = arguments[0];
        const names = performance.getEntriesByType("resource").map((one) => one.name).filter((name) => name.includes("/tiles/objects/"));
        Promise.all(names.map(async (name) => (await fetch(name)).headers.get("content-type"))).then(done);"""
    )
    assert set(kinds) == {"image/png", "application/octet-stream"}
    press(browser, "0")
    settle(browser)
    assert text(browser, "scale-text") == scale
    browser.find_element(By.ID, "zoom-in").click()
    settle(browser)
    assert text(browser, "scale-text") != scale


def test_overlays_switch(browser, address, shot):
    open_result(browser, address, "drawn")
    press(browser, "+" * 3)
    settle(browser)

    def look(name):
        settle(browser)
        return stage(shot(name))

    titles = [one.text for one in browser.find_elements(By.CSS_SELECTOR, ".layer label")]
    assert titles == ["Slide", "Tissue", "Probability", "Objects"]
    outlined = look("objects")
    press(browser, "4")
    bare = look("bare")
    assert np.abs(outlined - bare).mean() > 1
    press(browser, "3")
    heat = look("heat")
    assert np.abs(heat - bare).mean() > 3
    press(browser, "[" * 4)
    weaker = look("heat-weaker")
    assert 0.5 < np.abs(weaker - bare).mean() < np.abs(heat - bare).mean() * 0.7
    press(browser, "3")
    browser.find_element(By.ID, "show-tissue").click()
    tissue = look("tissue")
    assert (tissue - bare)[..., 2].mean() > (tissue - bare)[..., 0].mean()  # blue
    browser.find_element(By.ID, "show-tissue").click()
    assert np.abs(look("bare-again") - bare).mean() < 0.5
    press(browser, "1")
    assert look("nothing").max() < 30
    assert mistakes(browser) == []


def test_an_objects_measurements_appear(browser, address, shot):
    open_result(browser, address, "drawn")
    press(browser, "+" * 6)
    settle(browser)
    found = browser.execute_async_script(
        """const done = arguments[0], view = window.dsfcnnView, middle = view.middle();
        (async () => {  // an object near the middle
          for (let far = 0; ; far += 4) for (const [x, y] of [[far, 0], [-far, 0], [0, far], [0, -far]]) {
            const reply = await fetch(`/api/results/${view.key}/at?x=${middle.x + x}&y=${middle.y + y}`);
            const { object } = await reply.json();
            if (object) return done({ object, place: view.place(), x: middle.x + x, y: middle.y + y });
          }
        })();"""
    )
    place, known = found["place"], found["object"]
    assert green_along(shot("outlines"), known["outline"][0], place) > 0.8  # drawn from what the server packed
    viewer = browser.find_element(By.ID, "viewer")
    x, y = found["x"] * place["scale"] + place["left"], found["y"] * place["scale"] + place["top"]
    size = viewer.size
    ActionChains(browser).move_to_element_with_offset(viewer, int(x - size["width"] / 2), int(y - size["height"] / 2)).click().perform()
    wait(browser, "document.querySelector('.measurements')")
    shown = text(browser, "object")
    assert f"Nucleus <b> {known['number']:,}" in shown
    for name in ("Area µm²", "Perimeter µm", "Eccentricity", "Solidity", "Hematoxylin OD mean", "Probability"):
        assert name in shown
    assert f"{known['measurements']['Eccentricity']:.3f}"[:4] in shown
    assert known["id"] in shown
    yellow = stage(shot("object"))
    assert ((yellow[..., 0] > 220) & (yellow[..., 1] > 190) & (yellow[..., 2] < 130)).sum() > 30  # its outline
    press(browser, Keys.ESCAPE)
    assert "Click an object" in text(browser, "object")
    press(browser, "n")
    wait(browser, "document.querySelector('.object-name')?.textContent.endsWith(' 1')")
    press(browser, "n")
    wait(browser, "document.querySelector('.object-name').textContent.endsWith(' 2')")
    settle(browser)
    press(browser, Keys.ENTER)  # it is in the middle now
    wait(browser, "document.querySelector('.object-name').textContent.endsWith(' 2')")
    number = browser.find_element(By.ID, "number")
    number.clear()
    number.send_keys("7", Keys.ENTER)
    wait(browser, "document.querySelector('.object-name').textContent.endsWith(' 7')")
    assert mistakes(browser) == []


def test_an_unknown_slide_is_said(browser, address, shot):
    open_page(browser, f"{address}#nobody%20<i>knows</i>")
    wait(browser, "!document.getElementById('notice').hidden")
    shot("unknown")
    assert text(browser, "notice") == "There is no result called “nobody <i>knows</i>” in this folder; choose one of the list."
    browser.find_elements(By.CSS_SELECTOR, "#results button")[1].click()
    wait_for_result(browser, "drawn")
    assert not browser.find_element(By.ID, "notice").is_displayed()


def test_a_slide_that_is_lost_or_corrupt_is_said_and_its_objects_are_shown(browser, address, shot):
    open_result(browser, address, "lost")
    lost = shot("lost")
    assert "--slides" in text(browser, "notice")
    assert "stands in" in text(browser, "notice")
    assert stage(lost).std() > 15
    open_result(browser, address, "corrupt")
    corrupt = shot("corrupt")
    assert "corrupt.svs" in text(browser, "notice")
    assert stage(corrupt)[..., 1].max() > 120  # green objects on nothing
    assert "300" in text(browser, "legend")
    press(browser, "j")
    wait_for_result(browser, "drawn")
    assert browser.current_url.endswith("#drawn")
    assert not browser.find_element(By.ID, "notice").is_displayed()


def test_the_study_of_turning(browser, address, shot):
    open_page(browser, f"{address}#turning")
    wait(browser, "document.querySelectorAll('#study-view canvas').length === 9")

    def map_(number):
        """Grey levels of a map inside its disc."""
        data = browser.execute_script(
            "const c = document.querySelectorAll('#study-view canvas')[arguments[0]];"
            "return [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data].filter((_, place) => place % 4 === 0)",
            number,
        )
        side = int(len(data) ** 0.5)
        return np.array(data).reshape(side, side)[50:158, 50:158]

    wait(browser, "document.querySelector('#study-view canvas').getContext('2d').getImageData(104, 104, 1, 1).data[3] === 255")
    upright = [map_(number) for number in range(9)]
    press(browser, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert text(browser, "study-view").count("90°") == 1
    assert np.abs(map_(0) - upright[0]).mean() > 5
    assert np.abs(map_(5) - upright[5]).mean() > 5  # the steerable network's feature turns with the input
    assert np.abs(np.rot90(upright[5]) - map_(5)).mean() < 2  # counter-clockwise
    browser.find_element(By.ID, "back").click()
    shot("turning")
    assert np.abs(map_(5) - upright[5]).mean() < 2  # and stands still when turned back
    assert np.abs(map_(1) - upright[1]).mean() > 5  # that of the CNN does not
    assert mistakes(browser) == []


def test_keys_are_listed_and_every_control_has_the_focus_in_turn(browser, address, shot):
    open_result(browser, address, "drawn")
    press(browser, "?")
    assert browser.find_element(By.ID, "help").is_displayed()
    shot("keys")
    assert "next object" in text(browser, "keys")
    press(browser, Keys.ESCAPE)
    wait(browser, "!document.getElementById('help').open")
    seen = set()
    for _ in range(40):
        press(browser, Keys.TAB)
        active = browser.switch_to.active_element
        seen.add(active.get_attribute("id") or active.get_attribute("class") or active.text.split("\n")[0])
    assert {
        "zoom-in",
        "zoom-out",
        "fit",
        "help-open",
        "show-slide",
        "opacity-heat-0",
        "show-objects",
        "number",
        "measurement",
        "drawn",
    } <= seen
    assert any("openseadragon" in name for name in seen)
    unnamed = browser.execute_script(
        "return [...document.querySelectorAll('button, input, select')].filter((one) =>"
        " !(one.labels?.length || one.ariaLabel || one.textContent.trim())).map((one) => one.id)"
    )
    assert unnamed == []


@pytest.mark.parametrize("size", [(700, 900), (1900, 1000)])
def test_other_windows(browser, address, shot, size):
    browser.set_window_size(*size)
    open_result(browser, address, "drawn")
    shot(f"window-{size[0]}")
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
