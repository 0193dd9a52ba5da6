"""A headless Chromium, for benchmarks and tests of pages."""

import importlib.util
import os
import shutil
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",  # Chromium's sandbox is not available to root, as in many containers
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--window-size=1000,800",
)


class MissingError(RuntimeError):
    """A browser, its driver or selenium is not installed."""


def start(directory: Path) -> Any:
    """A running browser.

    Args:
      directory: Empty directory for the files of the browser.

    Returns:
      The driver of selenium.

    Raises:
      MissingError: A browser, its driver or selenium is not installed.
    """
    if importlib.util.find_spec("selenium") is None:
        raise MissingError("selenium is not installed")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    browser = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    driver = os.environ.get("CHROMEDRIVER") or shutil.which("chromedriver")
    if browser is None:
        raise MissingError(f"no browser: CHROMIUM is not set, and none of {', '.join(NAMES)} is on the path")
    if driver is None:
        raise MissingError("no driver of the browser: CHROMEDRIVER is not set, and chromedriver is not on the path")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (*FLAGS, f"--user-data-dir={directory}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(driver))
