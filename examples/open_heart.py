"""Files of a run that is about to change its code, to try the open-heart checks on: python open_heart.py FOLDER"""
import json
import pathlib
import random
import sys

import torch

BATCH, SEQUENCE = 4, 128


def model(features=8):
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Embedding(97, features), torch.nn.LayerNorm(features))


def checkpoints(folder):
    config = {"d_model": 8, "n_heads": 2}
    torch.save({"model_state": model().state_dict(), "config": config}, folder / "old.pt")
    torch.save({"model_state": torch.compile(model()).state_dict(), "config": config}, folder / "new.pt")
    wider = {"model_state": model(16).to(torch.bfloat16).state_dict(), "config": config | {"n_heads": 4}}
    torch.save(wider, folder / "wider.pt")


def manifest(folder):
    (folder / "shard_0.bin").write_bytes(bytes(4 * 100_000))  # int32 tokens
    gpus = {str(gpu): {"start_token": 20_480, "tokens_processed": 20_480, "checkpoint": "old.pt", "shard": "shard_0.bin"} for gpu in range(2)}
    (folder / "RESUME_MANIFEST.json").write_text(json.dumps({"step_tokens": BATCH * SEQUENCE, "gpus": gpus}, indent=1))


def log(path, steps, swap, shift=0.0, begin_anew=False):
    draw, ema = random.Random(1), 4.0
    with path.open("w") as file:
        for step in range(1, steps):
            tf = 4 + draw.gauss(0, 0.15) + (shift if step >= swap else 0)
            ema = tf if begin_anew and step == swap else 0.98 * ema + 0.02 * tf
            print(f"step={step} tf={tf:.4f} ema_tf={ema:.4f} lb={14.028 + draw.gauss(0, 0.01):.4f}", file=file)


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    checkpoints(folder)
    manifest(folder)
    log(folder / "train.log", 5100, 5000)
    log(folder / "worse.log", 5100, 5000, shift=0.5)
    log(folder / "anew.log", 5100, 5000, begin_anew=True)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
