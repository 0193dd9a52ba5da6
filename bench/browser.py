"""A headless Chromium for tests of pages."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

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


def start(directory: Path) -> Any:
    """A running browser.

    Args:
      directory: Empty directory for the files of the browser.

    Returns:
      The driver of selenium; the test is skipped if a browser, its driver or selenium is not installed.
    """
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    from selenium.webdriver.chrome.service import Service

    browser = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    driver = os.environ.get("CHROMEDRIVER") or shutil.which("chromedriver")
    if browser is None:
        pytest.skip(f"no browser: neither CHROMIUM nor any of {', '.join(NAMES)} is there")
    if driver is None:
        pytest.skip("no driver of the browser: neither CHROMEDRIVER nor chromedriver is there")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (*FLAGS, f"--user-data-dir={directory}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(driver))
