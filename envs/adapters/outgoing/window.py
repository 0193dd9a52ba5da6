"""A window that shows images with pygame, as Gymnasium's own environments do."""

from __future__ import annotations

from typing import Any

import numpy as np

from envs.errors import MissingPackageError, installing

__all__ = ["Window"]


class Window:
    """One window, opened with the first picture.

    Args:
      title: Title of the window.
      fps: Largest number of images per second.

    Raises:
      ImportError: The package pygame is not installed.
    """

    def __init__(self, title: str, fps: int) -> None:
        try:
            import pygame
        except ImportError:
            raise MissingPackageError(
                f"render_mode='human' takes pygame, which is not installed: {installing('gymnasium')}."
            ) from None
        self._pygame: Any = pygame
        self._fps, self._title = fps, title
        self._screen: Any = None
        self._clock: Any = None

    def show(self, picture: np.ndarray) -> None:
        """Show an image, uint8 `[height, width, 3]`, and wait until the next one is due."""
        pygame = self._pygame
        if self._screen is None:
            pygame.display.init()
            pygame.display.set_caption(self._title)
            self._screen = pygame.display.set_mode((picture.shape[1], picture.shape[0]))
            self._clock = pygame.time.Clock()
        self._screen.blit(pygame.surfarray.make_surface(picture.swapaxes(0, 1)), (0, 0))
        pygame.event.pump()
        self._clock.tick(self._fps)
        pygame.display.flip()

    def close(self) -> None:
        """Close the window."""
        if self._screen is not None:
            self._pygame.display.quit()
            self._screen = None
