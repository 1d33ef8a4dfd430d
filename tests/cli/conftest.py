"""Every JSON file that a command writes in these tests is held against its schema."""

import json
from pathlib import Path

import pytest
from documents import check_document

from bnp_models.data import writing
from bnp_models.report.json_schemas import SCHEMAS


@pytest.fixture(autouse=True)
def documents_keep_their_schema(monkeypatch):
    write = writing.write_text

    def checked(text, path):
        if Path(path).name in SCHEMAS:
            check_document(json.loads(text), Path(path).name)
        write(text, path)

    monkeypatch.setattr(writing, "write_text", checked)
