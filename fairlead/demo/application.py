"""The demo's application: storing a file enqueues its indexing, and the index commits with the completion."""

import msgspec

import fairlead
from fairlead.demo.corpus import SourceFile, count_words

APP = "python"  # The name of the app in every tenant's name; its users are the library's modules.

app = fairlead.App()


def store_file(file: SourceFile) -> None:
    """Store a file and enqueue its indexing, both or neither."""

    def body(tr: fairlead.TenantTransaction) -> None:
        for number, chunk in enumerate(file.chunks()):
            tr.set(("file", file.path, number), chunk)
        tr.enqueue("index", {"path": file.path})

    app.tenant(APP, file.tenant).transact(body)


@app.handler("index", transactional=True, timeout=60)
def index_file(job: fairlead.Job, tr: fairlead.TenantTransaction) -> None:
    """Read a file back and write its words to the tenant's index, together with the item's completion.

    The two counters show whether it happened once: an index that is written twice looks the same.
    """
    path = job.payload["path"]
    text = b"".join(chunk for _, chunk in tr.get_range(("file", path)))
    words = count_words(text)
    for word, count in words.items():
        tr.set(("word", word, path), count.to_bytes(4, "big"))
    tr.add(("indexed", path), 1)
    tr.add(("words",), words.total())
    tr.set(("waited_us", path), msgspec.msgpack.encode(tr.now_us - job.enqueued_us))


def search(word: str, tenants: list[str]) -> list[tuple[str, str, int]]:
    """Return (tenant, path, how often) of every file that holds `word`, most often first."""

    def read(tr: fairlead.TenantTransaction) -> list[tuple[str, int]]:
        rows = tr.get_range(("word", word.lower()), snapshot=True)
        return [(key[2], int.from_bytes(value, "big")) for key, value in rows]

    found = [(tenant, path, count) for tenant in tenants for path, count in app.tenant(APP, tenant).transact(read)]
    return sorted(found, key=lambda row: (-row[2], row[1]))
