"""Images of all environments of this package."""

from envs.rendering.scenes import Scene, drawable, frame

__all__ = ["Scene", "drawable", "frame"]
