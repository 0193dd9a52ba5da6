"""Following training as it goes, in TensorBoard, Weights & Biases, MLflow or a CSV file."""

from jaxrl.tracking.trackers import csv, mlflow, tensorboard, wandb

__all__ = ["csv", "mlflow", "tensorboard", "wandb"]
