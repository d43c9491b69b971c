"""`ui` and `console` open the browser without showing the key to other users of the machine."""

import os
import subprocess
import sys
from pathlib import Path
from urllib.request import url2pathname

URL = "http://127.0.0.1:8234/namespaces/shop/runs?key=s3cret&a=b"
_OPEN = f"""
from pathlib import Path
from perdure.cli.verbs.browser import opened
with opened({URL!r}):
    print(Path({{arguments!r}}).read_text())
"""


def test_the_key_is_not_in_the_arguments_of_the_browser(tmp_path: Path) -> None:
    """Other users read the arguments of all processes in /proc. As Jupyter does: jupyter-server's `use_redirect_file`."""
    browser, arguments, page = tmp_path / "browser", tmp_path / "arguments", tmp_path / "page"
    browser.write_text(
        f'#!/bin/sh\necho "$@" > {arguments}\nfile=${{1#file://}}\ncat "$file" > {page}\nstat -c %a "$file" >> {arguments}\n'
    )
    browser.chmod(0o700)
    program = _OPEN.format(arguments=str(arguments))
    environment = {**os.environ, "BROWSER": str(browser)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    address, mode = done.stdout.split()
    assert address.startswith("file://")
    assert "s3cret" not in done.stdout
    assert mode == "600"
    assert "url=http://127.0.0.1:8234/namespaces/shop/runs?key=s3cret&amp;a=b" in page.read_text()
    assert not Path(url2pathname(address.removeprefix("file://"))).exists()
