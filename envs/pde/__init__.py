"""Control of partial differential equations: fields on a circle, seen by sensors and moved by actuators."""
