SET LOCAL ROLE tcl_owner;

CREATE TYPE tcl.call_state AS ENUM (
  'held', 'ready', 'claimed', 'executing', 'in_doubt',
  'succeeded', 'failed', 'denied', 'cancelled', 'expired'
);

CREATE TYPE tcl.effect_class AS ENUM (
  'read_only', 'idempotent', 'reconcilable', 'at_most_once', 'transactional'
);

-- The guard: one row per call, and the only place where an effect is admitted.
-- Key columns are COLLATE "C": a changed libc collation can corrupt a text index and let a duplicate
-- into a unique one. 512 bytes stay far below the row limit of a B-tree.
-- There is no index on state or on a time that changes, so every update stays HOT.
CREATE TABLE tcl.call_guard (
  tenant           text COLLATE "C" NOT NULL,
  request_id       text COLLATE "C" NOT NULL CHECK (position(':' IN request_id) = 0),
  response_id      text COLLATE "C" NOT NULL,
  call_id          text COLLATE "C" NOT NULL,
  idempotency_key  text COLLATE "C" NOT NULL,
  tool             text COLLATE "C" NOT NULL,
  effect           tcl.effect_class NOT NULL,
  args_hash        bytea NOT NULL CHECK (octet_length(args_hash) = 33),
  state            tcl.call_state NOT NULL,
  fence            bigint NOT NULL DEFAULT 0,
  claims           smallint NOT NULL DEFAULT 0,
  begun            smallint NOT NULL DEFAULT 0,
  max_begun        smallint NOT NULL DEFAULT 1,
  emitted_at       timestamptz NOT NULL,
  deadline         timestamptz NOT NULL,
  redrive_until    timestamptz,
  cancel_requested boolean NOT NULL DEFAULT false,
  decision_id      text,
  policy_rev       text,
  source_topic     text COLLATE "C",
  source_partition integer,
  source_offset    bigint,
  created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  started_at       timestamptz,
  finished_at      timestamptz,
  CONSTRAINT call_once UNIQUE (tenant, idempotency_key),
  CONSTRAINT call_key_shape CHECK (
    idempotency_key = request_id || ':' || call_id AND octet_length(idempotency_key) <= 512
  ),
  CONSTRAINT call_finished CHECK (
    (state IN ('succeeded', 'failed', 'denied', 'cancelled', 'expired')) = (finished_at IS NOT NULL)
  )
) WITH (fillfactor = 75);

COMMENT ON COLUMN tcl.call_guard.args_hash IS
  'one byte of algorithm, then SHA-256: 01 over the RFC 8785 form, 02 over the raw bytes';
COMMENT ON COLUMN tcl.call_guard.begun IS
  'starts of the effect that were not proven to be unsent';

-- Never changes after the insert, so it costs no HOT update; the pruner walks it.
CREATE INDEX call_guard_deadline ON tcl.call_guard (deadline);

-- Never changes either; lists begin at its newest end.
CREATE INDEX call_guard_created ON tcl.call_guard (created_at);

-- What is owned just now; lives from deletes, so it is vacuumed early.
CREATE TABLE tcl.call_active (
  tenant          text COLLATE "C" NOT NULL,
  idempotency_key text COLLATE "C" NOT NULL,
  fence           bigint NOT NULL,
  owner           text NOT NULL,
  lease_until     timestamptz NOT NULL,
  PRIMARY KEY (tenant, idempotency_key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

-- What waits: for an executor (ready), for a person (held), for a settlement (in_doubt).
CREATE TABLE tcl.call_parked (
  tenant          text COLLATE "C" NOT NULL,
  idempotency_key text COLLATE "C" NOT NULL,
  state           tcl.call_state NOT NULL CHECK (state IN ('held', 'ready', 'in_doubt')),
  tool            text COLLATE "C" NOT NULL,
  since           timestamptz NOT NULL,
  not_before      timestamptz NOT NULL,
  PRIMARY KEY (tenant, idempotency_key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE tcl.call_conflict (
  tenant          text COLLATE "C" NOT NULL,
  idempotency_key text COLLATE "C" NOT NULL,
  args_hash       bytea NOT NULL,
  tool            text COLLATE "C" NOT NULL,
  seen            integer NOT NULL DEFAULT 1,
  first_seen      timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (tenant, idempotency_key, args_hash, tool)
);

CREATE TABLE tcl.call_approval (
  tenant          text COLLATE "C" NOT NULL,
  idempotency_key text COLLATE "C" NOT NULL,
  args_hash       bytea NOT NULL,
  approver        text NOT NULL,
  approved        boolean NOT NULL,
  expires_at      timestamptz NOT NULL,
  used_fence      bigint,
  PRIMARY KEY (tenant, idempotency_key, args_hash)
);

-- bytea and not jsonb: jsonb refuses \u0000 and merges duplicate names.
CREATE TABLE tcl.call_result (
  tenant          text COLLATE "C" NOT NULL,
  idempotency_key text COLLATE "C" NOT NULL,
  fence           bigint NOT NULL,
  outcome         tcl.call_state NOT NULL,
  body            bytea CHECK (octet_length(body) <= 65536),
  body_ref        text,
  body_hash       bytea,
  error_class     text,
  PRIMARY KEY (tenant, idempotency_key)
);

-- Absent is not zero: a counter that nobody reported is NULL with origin 'absent'.
CREATE TABLE tcl.call_usage (
  tenant          text COLLATE "C" NOT NULL,
  idempotency_key text COLLATE "C" NOT NULL,
  fence           bigint NOT NULL,
  component       text COLLATE "C" NOT NULL,
  quantity        numeric,
  unit            text NOT NULL,
  origin          text NOT NULL CHECK (origin IN ('reported', 'estimated', 'absent')),
  PRIMARY KEY (tenant, idempotency_key, fence, component),
  CHECK ((quantity IS NULL) = (origin = 'absent'))
);

-- Append-only; no content, only ids, states and words of ours.
CREATE TABLE tcl.call_history (
  id              bigint GENERATED ALWAYS AS IDENTITY,
  tenant          text COLLATE "C" NOT NULL,
  idempotency_key text COLLATE "C" NOT NULL,
  at              timestamptz NOT NULL DEFAULT clock_timestamp(),
  from_state      tcl.call_state,
  to_state        tcl.call_state NOT NULL,
  fence           bigint NOT NULL,
  by              text,
  why             text,
  PRIMARY KEY (tenant, idempotency_key, id)
);

-- Column names as Debezium's outbox event router expects them.
CREATE TABLE tcl.outbox (
  id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant      text COLLATE "C" NOT NULL,
  aggregateid text COLLATE "C" NOT NULL,
  type        text NOT NULL,
  payload     bytea,
  fence       bigint NOT NULL,
  created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- One row per timeline of the write-ahead log: did the promotion that began it lose commits?
CREATE TABLE tcl.epoch (
  timeline integer PRIMARY KEY,
  since    timestamptz NOT NULL,
  lossless boolean NOT NULL
);

-- Nothing emitted up to this moment may start any more, because rows as old have been pruned.
CREATE TABLE tcl.prune_mark (
  only_row      boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  emitted_until timestamptz NOT NULL
);
INSERT INTO tcl.prune_mark (emitted_until) VALUES ('-infinity');

CREATE SEQUENCE tcl.fence_seq;

RESET ROLE;
