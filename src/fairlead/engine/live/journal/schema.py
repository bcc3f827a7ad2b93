"""The tables of the journal's file, and how a file of an earlier format becomes one of this format."""

import sqlite3

APPLICATION_ID = 0x46524C44  # "FRLD"
VERSION = 2

# `ended_on` and `age_s` are instants of the journal's own clock. Keys outlive the requests that they came with.
_AGES = """
CREATE INDEX requests_by_end ON requests (ended_on) WHERE ended_on IS NOT NULL;
CREATE TABLE keys (
    workflow TEXT NOT NULL,
    key TEXT NOT NULL,
    id TEXT NOT NULL,
    digest BLOB NOT NULL,
    ended_on REAL NOT NULL,
    PRIMARY KEY (workflow, key)
) WITHOUT ROWID;
CREATE INDEX keys_by_end ON keys (ended_on);
CREATE TABLE clock (age_s REAL NOT NULL);
INSERT INTO clock VALUES (0);
"""
_SCHEMA = f"""
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
BEGIN IMMEDIATE;
CREATE TABLE requests (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    workflow TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    accepted_at REAL NOT NULL,
    deadline REAL,
    budget_usd REAL,
    request_id TEXT,
    traceparent TEXT,
    callback_url TEXT,
    key TEXT,
    digest BLOB,
    finished_at REAL,
    reason TEXT,
    cost_usd REAL NOT NULL DEFAULT 0,
    ran_as TEXT,
    delivery TEXT,
    delivery_attempts INTEGER NOT NULL DEFAULT 0,
    delivery_note TEXT,
    body BLOB,
    result BLOB,
    ended_on REAL
);
CREATE UNIQUE INDEX requests_by_key ON requests (workflow, key) WHERE key IS NOT NULL;
CREATE INDEX requests_open ON requests (seq) WHERE finished_at IS NULL;
CREATE INDEX requests_undelivered ON requests (seq) WHERE delivery = 'pending';
{_AGES}
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION};
COMMIT;
"""
_FROM_VERSION_1 = f"""
BEGIN IMMEDIATE;
ALTER TABLE requests ADD COLUMN ended_on REAL;
UPDATE requests SET ended_on = 0 WHERE finished_at IS NOT NULL;
DROP INDEX requests_by_end;
{_AGES}
PRAGMA user_version = {VERSION};
COMMIT;
"""


def create(connection: sqlite3.Connection) -> None:
    """Make the tables of an empty file."""
    connection.executescript(_SCHEMA)


def bring_up_to_date(connection: sqlite3.Connection, version: int) -> None:
    """Change a sound file of an earlier format into one of this format."""
    if version == 1:
        connection.executescript(_FROM_VERSION_1)
