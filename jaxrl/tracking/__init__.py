"""Trackers of running training calls: TensorBoard, Weights & Biases, MLflow and CSV files."""

from jaxrl.tracking.trackers import csv, mlflow, tensorboard, wandb

__all__ = ["csv", "mlflow", "tensorboard", "wandb"]
