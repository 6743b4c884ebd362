from typing import final

@final
class Table:
    name: str
    num_rows: int
    column_names: list[str]
    descriptions: dict[str, str]
    nbytes: int
    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

def replay(
    path: str, policies: list[str], tables: list[str], differences: str
) -> tuple[str, str | None, dict[str, Table]]: ...
def export(path: str, folder: str, policies: list[str]) -> str | None: ...
