"""The page that plays an episode of a crowd: its contents, and its appearance in a browser."""

import base64
import html
import itertools
import json
import re
import statistics
import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pages import episode_in

from bench.player import DRAW, walkers
from envs.control.pendulum import Pendulum
from envs.crowd.player.page import player
from envs.crowd.state import Goals, Obstacles, Traits
from envs.crowd.trajectories import Trajectory
from jaxrl.policies.rendering import render

NUM_FRAMES, NUM_AGENTS, ABSENT = 13, 5, 3
ARRIVAL = 8  # the frame from which the first person stands


def some_episode() -> Trajectory:
    """Five places, one of them empty; people walk right, the first arrives; a box drives up."""
    frame = np.arange(NUM_FRAMES, dtype=np.float32)
    agent = np.arange(NUM_AGENTS, dtype=np.float32)
    position = np.stack(np.broadcast_arrays(-4 + 0.5 * frame[:, None] + 0.1 * agent, 1.5 * agent - 3), axis=-1)
    position[ARRIVAL:, 0] = position[ARRIVAL, 0]
    walking = np.ones((NUM_FRAMES, NUM_AGENTS), bool)
    walking[ARRIVAL:, 0] = False
    walking[:, ABSENT] = False
    velocity = np.zeros_like(position)
    velocity[1:, :, 0] = 0.5 + 0.1 * agent
    one = np.ones(NUM_AGENTS, np.float32)
    box_centre = np.stack([np.tile([0.0, 6.0], (NUM_FRAMES, 1)), np.stack([5 + 0 * frame, frame / 4], -1)], axis=1)
    return Trajectory(
        position=jnp.asarray(position),
        velocity=jnp.asarray(velocity),
        heading=jnp.asarray(np.broadcast_to(0.1 * agent, (NUM_FRAMES, NUM_AGENTS))),
        walking=jnp.asarray(walking),
        box_centre=jnp.asarray(box_centre, jnp.float32),
        power=jnp.asarray(np.where(walking[:-1], 2.0 + agent, 0.0), jnp.float32),
        reward=jnp.zeros((NUM_FRAMES - 1, NUM_AGENTS)),
        interval=jnp.float32(0.1),
        present=jnp.arange(NUM_AGENTS) != ABSENT,
        traits=Traits(*(jnp.asarray(0.3 * one) for _ in range(7))),
        goals=Goals(centre=jnp.asarray(position[-1] + 1), half=jnp.full((NUM_AGENTS, 2), 0.4)),
        obstacles=replace(
            Obstacles.none(),
            box_centre=jnp.asarray(box_centre[0], jnp.float32),
            box_half=jnp.array([[3.0, 0.5], [0.5, 1.0]]),
            pillar_centre=jnp.array([[0.0, -5.0]]),
            pillar_radius=jnp.array([0.25]),
        ),
        metrics={},
    )


def unpacked(packed, *shape):
    return np.frombuffer(base64.b64decode(packed["data"]), "<i2").reshape(*shape) * packed["unit"]


def test_the_page_holds_the_episode_of_the_present_agents(tmp_path):
    episode = some_episode()
    assert player(episode, path=tmp_path / "new" / "x.html") == tmp_path / "new" / "x.html"
    data = episode_in(tmp_path / "new" / "x.html")
    here = [0, 1, 2, 4]
    assert (data["agents"], data["num_frames"]) == (here, NUM_FRAMES)
    assert data["walks"] == [ARRIVAL, NUM_FRAMES, NUM_FRAMES, NUM_FRAMES]
    assert data["enters"] == [0, 0, 0, 0]
    for name, leaf in (("position", episode.position), ("box_centre", episode.box_centre)):
        leaf = np.asarray(leaf)[:, here] if name == "position" else np.asarray(leaf)
        # Half a unit of rounding, and float64 that multiplies float32: far below.
        np.testing.assert_allclose(unpacked(data[name], *leaf.shape), leaf, rtol=0, atol=0.51 * data[name]["unit"])
        assert data[name]["unit"] < 0.001
    np.testing.assert_allclose(
        unpacked(data["power"], NUM_FRAMES - 1, 4), np.asarray(episode.power)[:, here], rtol=0, atol=1e-3
    )
    np.testing.assert_allclose(
        data["goals"],
        np.asarray(jnp.concatenate([episode.goals.centre, episode.goals.half], axis=1))[here],
        rtol=0,
        atol=1e-4,
    )
    assert data["pillars"] == [[0.0, -5.0, 0.25]]
    assert data["interval"] == pytest.approx(0.1)


@pytest.mark.slow
def test_walls_that_stand_are_reported_once(tmp_path):
    episode = some_episode()
    still = replace(episode, box_centre=jnp.tile(episode.box_centre[:1], (NUM_FRAMES, 1, 1)))
    data = episode_in(player(still, path=tmp_path / "x.html"))
    assert unpacked(data["box_centre"], -1, 2, 2).shape[0] == 1


def test_fifty_people_are_less_than_a_megabyte(tmp_path):
    def longer(leaf):
        return jnp.tile(leaf[:1], (201, 10, *[1] * (leaf.ndim - 2)))

    one = some_episode()
    many = replace(
        one,
        **{name: longer(getattr(one, name)) for name in ("position", "velocity", "heading", "walking")},
        power=longer(one.power)[:-1],
        present=jnp.ones(50, bool),
        traits=jax.tree.map(lambda leaf: jnp.tile(leaf, 10), one.traits),
        goals=jax.tree.map(lambda leaf: jnp.tile(leaf, (10, 1)), one.goals),
    )
    assert player(many, path=tmp_path / "x.html").stat().st_size < 250_000


def test_a_title_is_text_and_nothing_else(tmp_path):
    title = "</title><script>alert(1)</script> & __DATA__"
    page = player(some_episode(), path=tmp_path / "x.html", title=title).read_text()
    assert page.count("<script") == page.count("</script>") == 2
    assert page.count(html.escape(title)) == 2
    assert "__TITLE__" not in page and page.count("__DATA__") == 2  # those of the title


def test_the_page_refers_to_nothing_outside(tmp_path):
    page = player(some_episode(), path=tmp_path / "x.html").read_text()
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\(|\bsrc=|<iframe|fetch\(|XMLHttp", page)
    assert re.findall(r'href="([^"]*)"', page) == ["data:,"]


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("x.htm", {}, "x.htm'; a player's name ends in .html"),
        ("file/x.html", {}, "cannot be written"),
        ("x.html", {"present": jnp.zeros(NUM_AGENTS, bool)}, "trajectory must have an agent that takes part"),
        ("x.html", {"position": jnp.zeros((3, NUM_FRAMES, NUM_AGENTS, 2))}, "trajectory must be of one episode, with"),
        ("x.html", {"heading": jnp.full((NUM_FRAMES, NUM_AGENTS), jnp.nan)}, "but those of heading are not"),
    ],
)
def test_wrong_arguments_get_one_sentence(tmp_path, name, change, sentence):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ValueError, match=sentence):
        player(replace(some_episode(), **change), path=tmp_path / name)
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_only_crowds_have_pages_and_paths(tmp_path):
    for name in ("x.html", "x.png"):
        sentence = rf"{name}', but \{name[1:]} shows crowds only; a film of pendulum ends in .mp4 or .gif"
        with pytest.raises(ValueError, match=sentence):
            render(Pendulum(), None, tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def page(browser, tmp_path):
    """The browser with the page of `some_episode`."""
    player(some_episode(), path=tmp_path / "x.html", title="Four & more")
    browser.get_log("browser")
    browser.get((tmp_path / "x.html").as_uri())
    yield browser
    assert [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"] == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0


def ask(page, what):
    return page.execute_script(f"return jaxrlPlayer.{what}")


def pixels(page, places):
    """The colours `[places, 3]` of the canvas at places in CSS pixels."""
    seen = page.execute_script(
        """const {width, height, clientWidth} = document.getElementById("scene"), ratio = width / clientWidth;
        const data = document.getElementById("scene").getContext("2d").getImageData(0, 0, width, height).data;
        return arguments[0].map(([left, top]) => {
            const place = 4 * (Math.floor(top * ratio) * width + Math.floor(left * ratio));
            return Array.from(data.slice(place, place + 3));
        });""",
        np.asarray(places, float).tolist(),
    )
    return np.asarray(seen)


def rgb(colour):
    """The channels of a colour of CSS, of 255 each."""
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)] if colour[0] == "#" else json.loads(f"[{colour[4:-1]}]")


def within(seconds, condition):
    """Whether a condition becomes true in time."""
    end = time.monotonic() + seconds
    while not (now := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return now


def test_the_page_opens_at_the_start_and_waits(page):
    assert page.title == "Four & more"
    assert (ask(page, "frame"), ask(page, "numFrames"), ask(page, "numAgents")) == (0, NUM_FRAMES, 4)
    assert ask(page, "playing") is False
    assert page.find_element("id", "readout").text == "4 walking, 0 arrived"
    assert page.find_element("id", "time").text == "0.0 s of 1.2 s"


@pytest.mark.parametrize("frame", [0, 5.5, ARRIVAL, NUM_FRAMES - 1])
def test_everybody_is_drawn_where_the_episode_has_them(page, frame):
    page.execute_script(f"jaxrlPlayer.seek({frame})")
    assert ask(page, "frame") == frame
    drawn = ask(page, "drawn")
    assert [person["agent"] for person in drawn] == [0, 1, 2, 4]
    position = np.asarray(some_episode().position)[:, [0, 1, 2, 4]]
    expected = (position[int(np.floor(frame))] + position[int(np.ceil(frame))]) / 2
    # Rounded to half of a 32,767th of 8 m.
    np.testing.assert_allclose([[person["x"], person["z"]] for person in drawn], expected, rtol=0, atol=2e-4)
    assert [person["walking"] for person in drawn] == [frame < ARRIVAL, True, True, True]
    # Below the centre of a disc, next to the heading, is its colour; the axes are not mirrored.
    below = [(person["left"], person["top"] + person["radius"] / 2) for person in drawn]
    for person, pixel in zip(drawn, pixels(page, below), strict=True):
        assert pixel.tolist() == rgb(person["colour"]) != [255, 255, 255]
    scale = drawn[0]["radius"] / 0.3
    for one, other in itertools.pairwise(drawn):
        assert other["left"] - one["left"] == pytest.approx(scale * (other["x"] - one["x"]), abs=1e-6)
        assert one["top"] - other["top"] == pytest.approx(scale * (other["z"] - one["z"]), abs=1e-6)


@pytest.mark.parametrize(("interval", "step"), [(0.1, 1), (0.01, 6)])
def test_trails_fade_and_short_pieces_are_joined(browser, tmp_path, interval, step):
    episode = replace(some_episode(), interval=jnp.float32(interval))
    browser.get(player(episode, path=tmp_path / "x.html").as_uri())
    browser.execute_script(f"jaxrlPlayer.seek({ARRIVAL})")
    person = ask(browser, "drawn")[3]
    scale = person["radius"] / 0.3
    assert np.ceil(4 / (1.3 * interval * scale)) == step  # so that a piece is 4 pixels at 1.3 m/s
    ages = np.arange(2, ARRIVAL + 1)  # in decisions, of segments that the disc does not cover
    middles = [(person["left"] - scale * 0.5 * (age - 0.5), person["top"]) for age in ages]
    first = ages // step * step
    mean_age = (first + np.minimum(first + step, ARRIVAL + 1) - 1) / 2
    opacity = 0.7 * (1 - mean_age / 16)
    expected = 255 + opacity[:, None] * (np.asarray(rgb(person["colour"])) - 255)
    # Opacities and blended channels have 8 bits each: each rounds by at most one of 255.
    np.testing.assert_allclose(pixels(browser, middles), expected, rtol=0, atol=2)


def test_a_mixed_crowd_has_the_colours_of_its_speeds_and_states(browser, tmp_path):
    import matplotlib

    # On a grid of 6 x 6, in turn: a person that walks, one that enters at frame 10, one that arrived at frame 4.
    agent, frame = np.arange(36), np.arange(NUM_FRAMES)[:, None]
    position = np.tile(2.0 * np.stack([agent % 6, agent // 6], axis=-1), (NUM_FRAMES, 1, 1))
    position[:, 5] = position[:, 3]  # one that has arrived, at the place of one that walks and has a lower number
    walks, waits, stands = (agent % 3 == kind for kind in range(3))
    one = jnp.ones(36)
    episode = replace(
        some_episode(),
        position=jnp.asarray(position),
        velocity=jnp.asarray(np.stack([np.tile(agent / 18.0, (NUM_FRAMES, 1)), np.zeros((NUM_FRAMES, 36))], axis=-1)),
        heading=jnp.zeros((NUM_FRAMES, 36)),
        walking=jnp.asarray(walks | (waits & (frame >= 10)) | (stands & (frame < 4))),
        power=jnp.ones((NUM_FRAMES - 1, 36)),
        present=jnp.ones(36, bool),
        traits=Traits(*(0.3 * one for _ in range(7))),
        goals=Goals(centre=jnp.full((36, 2), 5.0), half=jnp.full((36, 2), 0.01)),
        obstacles=Obstacles.none(),
        box_centre=jnp.zeros((NUM_FRAMES, 0, 2)),
    )
    browser.get(player(episode, path=tmp_path / "x.html").as_uri())
    browser.execute_script("jaxrlPlayer.seek(6)")
    assert browser.find_element("id", "readout").text == "12 walking, 12 arrived, 12 to enter"
    drawn = ask(browser, "drawn")
    left, top, radius = (np.asarray([person[name] for person in drawn]) for name in ("left", "top", "radius"))
    assert [person["walking"] for person in drawn] == walks.tolist()
    seen = pixels(browser, np.stack([left, top + radius / 2], axis=-1))
    # The scale is ten colours of viridis, joined by straight lines. Of 64 shades the nearest is at most half of 1/63
    # away, where a channel changes by 5.2 at most (73 in a ninth); the tenths lie between neighbours of matplotlib's
    # 256 colours, which differ by up to 3.
    ten = 255 * matplotlib.colormaps["viridis"](np.linspace(0, 1, 10))[:, :3]
    scale = [np.interp(agent[walks] / 36, np.linspace(0, 1, 10), channel) for channel in ten.T]
    np.testing.assert_allclose(seen[walks], np.transpose(scale), rtol=0, atol=5.2 + 3)
    assert len(np.unique(seen[walks], axis=0)) == 12
    alone = stands & (agent != 5)
    np.testing.assert_array_equal(seen[alone], np.full((11, 3), 0xD9))
    np.testing.assert_array_equal(seen[5], seen[3])
    np.testing.assert_allclose(seen[waits], 255 + 0.3 * (0xD9 - 255) * np.ones((12, 3)), rtol=0, atol=1)
    tips = pixels(browser, np.stack([left + 0.7 * radius, top], axis=-1))
    assert np.all(tips[walks] == 255) and np.all(tips[alone | waits] < 250)
    browser.find_element("tag name", "body").send_keys("nnnn")  # chooses person 3
    rims = pixels(browser, np.stack([left - radius, top], axis=-1))
    assert rims[3].tolist() == [0xD5, 0x5E, 0x00]
    assert np.all(rims[walks & (agent != 3)].max(axis=1) < 0xB0)  # ink, next to the disc or to the page


@pytest.mark.slow  # not for its length, but because other processes on the same cores delay every draw
def test_a_thousand_people_are_drawn_thirty_times_a_second(browser, tmp_path):
    browser.get(player(walkers(1_000, 40), path=tmp_path / "x.html").as_uri())
    browser.execute_script("jaxrlPlayer.seek(16)")
    drawn = ask(browser, "drawn")
    assert len(drawn) == 1_000 and sum(person["walking"] for person in drawn) > 900
    # Each draw is followed by reading a pixel, which waits for all of it. Other processes may delay a few of the draws
    # or, for some seconds, all. Drawing every person and piece apart had medians of 47 ms and more.
    medians = [statistics.median(browser.execute_script(DRAW, 16, 15))]
    while medians[-1] >= 1_000 / 30 and len(medians) < 5:
        medians.append(statistics.median(browser.execute_script(DRAW, 16, 15)))
    assert min(medians) < 1_000 / 30, medians


def test_it_plays_and_pauses_and_ends(page):
    page.find_element("css selector", "#rate option[value='0.25']").click()
    button = page.find_element("id", "play")
    button.click()
    assert button.text == "Pause" and ask(page, "playing")
    assert within(10, lambda: ask(page, "frame") > 0.2)
    button.click()
    frame = ask(page, "frame")
    assert not ask(page, "playing") and button.text == "Play" and 0 < frame < NUM_FRAMES - 1
    time.sleep(0.1)
    assert ask(page, "frame") == frame
    page.find_element("css selector", "#rate option[value='4']").click()
    button.click()
    assert within(10, lambda: not ask(page, "playing"))
    assert ask(page, "frame") == NUM_FRAMES - 1


def test_keys_and_the_slider_move_in_time(page):
    body, slider = page.find_element("tag name", "body"), page.find_element("id", "scrub")
    body.send_keys("\ue014\ue014")  # right, twice
    assert ask(page, "frame") == 2
    slider.send_keys("\ue014\ue012\ue012")  # right, left, left: a step each with the slider in focus, too
    assert ask(page, "frame") == 1
    body.send_keys("\ue010")  # end
    assert ask(page, "frame") == NUM_FRAMES - 1 and slider.get_attribute("aria-valuetext") == "1.2 s of 1.2 s"
    page.execute_script(
        "const slider = document.getElementById('scrub'); slider.value = 9; slider.dispatchEvent(new Event('input'))"
    )
    assert ask(page, "frame") == 9
    assert page.find_element("id", "readout").text == "3 walking, 1 arrived"
    page.execute_script(  # from the beginning and slowly, so that the end is not reached between the two keys
        "const rate = document.getElementById('rate'); rate.value = '0.25'; rate.dispatchEvent(new Event('change'));"
        "const slider = document.getElementById('scrub'); slider.value = 0; slider.dispatchEvent(new Event('input'))"
    )
    body.send_keys(" ")
    assert ask(page, "playing")
    body.send_keys(" ")
    assert not ask(page, "playing")


def test_colours_have_a_legend(page):
    quantity = page.find_element("id", "quantity")
    assert quantity.text == "speed (m/s)"
    seen = {tuple(person["colour"] for person in ask(page, "drawn"))}
    for name, text in (("power", "power while walking (J/(kg s))"), ("agent", "people in 6 colours")):
        page.find_element("css selector", f"#colour option[value='{name}']").click()
        assert quantity.text == text
        seen.add(tuple(person["colour"] for person in ask(page, "drawn")))
    assert len(seen) == 3
    assert len(set(max(seen, key=lambda colours: len(set(colours))))) == 4


def test_a_person_shows_speed_and_energy(page):
    from selenium.webdriver.common.action_chains import ActionChains

    page.execute_script("jaxrlPlayer.seek(3)")
    canvas, person = page.find_element("id", "scene"), ask(page, "drawn")[3]
    middle = canvas.size["width"] / 2, canvas.size["height"] / 2
    ActionChains(page).move_to_element_with_offset(
        canvas, round(person["left"] - middle[0]), round(person["top"] - middle[1])
    ).perform()
    # 0.5 + 0.1 * 4 m/s, and three decisions of 0.1 s at 2 + 4 J/(kg s).
    assert page.find_element("id", "card").text == "person 4\n0.90 m/s\n1.8 J/kg so far"
    page.find_element("tag name", "body").send_keys("n")
    assert page.find_element("id", "card").text.startswith("person 0\n0.50 m/s\n0.6 J/kg")


def test_the_scene_fits_a_small_window_with_fine_pixels(page):
    metrics = {"width": 520, "height": 480, "deviceScaleFactor": 2, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        assert within(60, lambda: page.execute_script("return document.getElementById('scene').width") == 2 * 520)
        height, scroll = page.execute_script(
            "return [document.getElementById('scene').clientHeight, document.documentElement.scrollWidth]"
        )
        assert scroll <= 520 and 100 < height < 480
        assert all(0 < person["left"] < 520 and 0 < person["top"] < height for person in ask(page, "drawn"))
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
