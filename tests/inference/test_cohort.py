"""Workers of a Dask cluster compute the same bytes, also when one of them is killed."""

import os
import signal

import numpy as np
import pytest
from PIL import Image

import dsfcnn
from dsfcnn.errors import MissingInputError
from dsfcnn.inference import run
from dsfcnn.inference.job import Options

distributed = pytest.importorskip("distributed")


@pytest.fixture
def model(tmp_path, as_trained):
    dsfcnn.save_model(as_trained(dsfcnn.create("cnn-nuclei", width=0.05)), tmp_path / "model", mpp=0.25, tile_margin=32)
    return tmp_path / "model"


def results(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "run.json"}


def test_two_workers_one_of_them_killed(model, tmp_path):
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (200, 260, 3), np.uint8)).save(tmp_path / "a.png")
    options = Options(workers=0, tile=64)
    run.predict([tmp_path / "a.png"], model, tmp_path / "plain", options)
    killed = []
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True) as cluster:

        def progress(name):
            def show(what, done, total):
                if what == "tiles" and done == 3 and not killed:
                    with distributed.Client(cluster) as client:
                        killed.extend(client.run(os.getpid).values())
                    os.kill(killed[0], signal.SIGKILL)

            return show

        address = cluster.scheduler_address
        assert run.predict([tmp_path / "a.png"], model, tmp_path / "out", options, scheduler=address, progress=progress) == {}
    assert len(killed) == 2
    assert results(tmp_path / "out") == results(tmp_path / "plain")


def test_no_scheduler_there(model, tmp_path, refused, monkeypatch):
    monkeypatch.setattr("dsfcnn.inference.cohort._TIMEOUT", 1)
    Image.new("RGB", (20, 20)).save(tmp_path / "a.png")
    with refused(MissingInputError, "dask scheduler"):
        run.predict([tmp_path / "a.png"], model, tmp_path / "out", Options(workers=0), scheduler="tcp://127.0.0.1:1")
