"""Frames per second of the page that plays a crowd, in headless Chromium without a graphics card.

    python bench/player.py [--agents 1000 10000] [--seconds 5] [--draws 30] [--json FILE]

People walk in circles of 3 m, with trails; a tenth of them arrive during the episode. The page plays for `--seconds`
in a window of 1,000 x 800 pixels. A frame is a call of `requestAnimationFrame` in which the page draws; Chromium makes
at most 60 of them in a second. Then the page draws `--draws` moments, each followed by reading a pixel, which waits
until everything is drawn: the time of one draw is that of both. The exit status is 1 if a page of at most 1,000 people
plays fewer than 30 frames a second.
"""

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import jax.numpy as jnp
import numpy as np

from bench.browser import MissingError, start
from bench.report import Report, benchmark_parser
from envs.crowd.player.page import player
from envs.crowd.rendering import TRAIL
from envs.crowd.state import Goals, Obstacles, Traits
from envs.crowd.trajectories import Trajectory

INTERVAL, TURN = 0.1, 3.0  # s of a decision, and m from the centre of a circle
LEAST, LARGEST = 30, 1_000  # frames a second, and the largest crowd that must have them

# Plays from the first moment with whole trails, and returns the times of the starts and of the ends of frames, in ms.
PLAY = """
const [first, seconds, done] = arguments, request = window.requestAnimationFrame, starts = [], ends = [];
window.requestAnimationFrame = (callback) => request((now) => {
  starts.push(performance.now());
  callback(now);
  ends.push(performance.now());
});
jaxrlPlayer.seek(first);
jaxrlPlayer.play();
setTimeout(() => {
  jaxrlPlayer.pause();
  window.requestAnimationFrame = request;
  done([starts, ends]);
}, 1000 * seconds);
"""

# Draws moments between decisions, and returns the time of each in ms.
DRAW = """
const [first, draws] = arguments, pen = document.getElementById("scene").getContext("2d");
return Array.from({ length: draws }, (_, k) => {
  const start = performance.now();
  jaxrlPlayer.seek(first + 0.3 * k);
  pen.getImageData(0, 0, 1, 1);
  return performance.now() - start;
});
"""


def walkers(num_agents: int, num_frames: int) -> Trajectory:
    """An episode of people on circles around the places of a grid, 1.5 m apart."""
    random, agent = np.random.default_rng(0), np.arange(num_agents)
    time = np.minimum(np.arange(num_frames)[:, None], np.where(agent % 10, num_frames, 1 + agent % num_frames))
    speed, start = random.uniform(0.6, 1.6, num_agents), random.uniform(-np.pi, np.pi, num_agents)
    heading = start + speed * INTERVAL / TURN * time
    side = int(np.ceil(np.sqrt(num_agents)))
    centre = 1.5 * np.stack([agent % side, agent // side], axis=-1)
    position = centre + TURN * np.stack([np.sin(heading), -np.cos(heading)], axis=-1)
    walking = np.arange(num_frames)[:, None] <= time
    velocity = (walking * speed)[:, :, None] * np.stack([np.cos(heading), np.sin(heading)], axis=-1)
    one = jnp.ones(num_agents)
    return Trajectory(
        position=jnp.asarray(position),
        velocity=jnp.asarray(velocity),
        heading=jnp.asarray(np.remainder(heading + np.pi, 2 * np.pi) - np.pi),
        walking=jnp.asarray(walking),
        box_centre=jnp.zeros((num_frames, 0, 2)),
        power=jnp.asarray((walking * (2.23 + 1.26 * speed**2))[:-1]),
        reward=jnp.zeros((num_frames - 1, num_agents)),
        interval=jnp.float32(INTERVAL),
        present=jnp.ones(num_agents, bool),
        traits=Traits(jnp.asarray(random.uniform(0.25, 0.35, num_agents)), *(one for _ in range(6))),
        goals=Goals(centre=jnp.asarray(position[-1]), half=jnp.full((num_agents, 2), 0.3)),
        obstacles=Obstacles.none(),
        metrics={},
    )


def measured(
    browser: Any, page: Path, seconds: float, draws: int
) -> tuple[float, list[float], list[float], list[float]]:
    """Frames per second of a page, and ms from frame to frame, of the script of a frame, and of a draw."""
    browser.set_script_timeout(seconds + 60)
    browser.get(page.as_uri())
    starts, ends = np.asarray(browser.execute_async_script(PLAY, TRAIL, seconds))
    if len(starts) < 2:
        raise RuntimeError(f"{page.name} did not draw two frames in {seconds:g} s")
    rate = 1e3 * (len(starts) - 1) / (starts[-1] - starts[0])
    return rate, np.diff(starts).tolist(), (ends - starts).tolist(), browser.execute_script(DRAW, TRAIL, draws)


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--agents", type=int, nargs="+", default=[1_000, 10_000], help="numbers of people")
    parser.add_argument("--seconds", type=float, default=5.0, help="time for which a page plays")
    parser.add_argument("--draws", type=int, default=30, help="number of draws that are timed alone")
    arguments = parser.parse_args()
    report = Report(parser, arguments, "frames per second of the page that plays a crowd, without a graphics card")
    times = "ms from frame to frame", "ms of its script", "ms of a draw"
    table = report.table(
        "Headless Chromium; times are median (least to most)",
        {"people": ",d", "MB of the page": ".1f", "frames/s": ".1f", **dict.fromkeys(times, ".1f")},
    )
    num_frames = 1 + TRAIL + int(np.ceil(max(arguments.seconds / INTERVAL, 0.3 * arguments.draws))) + 10
    results = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            browser = start(Path(folder) / "browser")
        except MissingError as reason:
            browser = None
            report.require(False, f"Nothing was played: {reason}.")
        try:
            for num_agents in arguments.agents:
                page = player(walkers(num_agents, num_frames), path=Path(folder) / f"{num_agents}.html")
                size = page.stat().st_size / 1e6
                if browser is None:
                    table.add(num_agents, size, *[None] * 4)
                    continue
                rate, *milliseconds = measured(browser, page, arguments.seconds, arguments.draws)
                table.add(num_agents, size, rate, *milliseconds)
                median = statistics.median(milliseconds[-1])
                results.append(f"{num_agents:,} people {rate:.0f} ({median:.0f} ms a draw)")
                enough = rate >= LEAST or num_agents > LARGEST
                report.require(enough, f"{num_agents:,} people play at {rate:.1f} frames a second, below {LEAST}.")
        finally:
            if browser is not None:
                browser.quit()
    report.finish(", ".join(results) or "no browser")


if __name__ == "__main__":
    main()
