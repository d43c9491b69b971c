import io
import json
import tarfile
from pathlib import Path

from cluster.archive import Image, Layer, write_archive


def layer(folder: Path, name: str) -> Layer:
    file = folder / name
    file.write_text(name)
    return Layer.of(file)


def test_an_archive_holds_each_layer_once_and_a_config_per_image(tmp_path: Path) -> None:
    common, top = layer(tmp_path, "common"), layer(tmp_path, "top")
    output = io.BytesIO()
    images = [Image(("a:1",), (common,)), Image(("b:1",), (common, top), {"Cmd": ["b"]})]
    write_archive(images, "x86_64", output)

    output.seek(0)
    with tarfile.open(fileobj=output) as archive:
        names = archive.getnames()
        files = {name: archive.extractfile(name) for name in names}
        content = {name: file.read() for name, file in files.items() if file}
    assert names.count(f"{common.digest}.tar") == 1
    a, b = json.loads(content["manifest.json"])
    assert a["RepoTags"] == ["a:1"]
    assert b["Layers"] == [f"{common.digest}.tar", f"{top.digest}.tar"]
    assert a["Config"] != b["Config"]
    config = json.loads(content[b["Config"]])
    assert config["architecture"] == "amd64"
    assert config["config"]["Cmd"] == ["b"]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{common.digest}", f"sha256:{top.digest}"]
    assert len(config["history"]) == 2
