-- What responses used and what calls cost: facts and charges are two things and two tables.
SET LOCAL ROLE tcl_owner;

-- One response as its usage was reported. Absent is not zero: a counter that nobody reported is NULL.
-- The newest revision counts; an earlier one is never changed. `cause` says why there is another:
--   first        the first report
--   late         names what was absent until now
--   corrected    another number than before
--   nothing_new  another record that says nothing that was not known
CREATE TABLE tcl.usage_fact (
  tenant              text COLLATE "C" NOT NULL,
  request_id          text COLLATE "C" NOT NULL,
  response_id         text COLLATE "C" NOT NULL,
  revision            integer NOT NULL CHECK (revision >= 0),
  cause               text NOT NULL CHECK (cause IN ('first', 'late', 'corrected', 'nothing_new')),
  digest              bytea NOT NULL,
  dialect             text COLLATE "C" NOT NULL,
  model               text COLLATE "C",
  input_tokens        bigint CHECK (input_tokens >= 0),
  output_tokens       bigint CHECK (output_tokens >= 0),
  total_tokens        bigint CHECK (total_tokens >= 0),
  cached_input_tokens bigint CHECK (cached_input_tokens >= 0),
  reasoning_tokens    bigint CHECK (reasoning_tokens >= 0),
  provider            jsonb NOT NULL,
  first_at            timestamptz NOT NULL,
  reported_at         timestamptz NOT NULL,
  recorded_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
  source_topic        text COLLATE "C",
  source_partition    integer,
  source_offset       bigint,
  PRIMARY KEY (tenant, request_id, response_id, revision),
  CONSTRAINT usage_once UNIQUE (tenant, request_id, response_id, digest)
);

COMMENT ON COLUMN tcl.usage_fact.digest IS 'SHA-256 of the report: a repetition adds nothing';
COMMENT ON COLUMN tcl.usage_fact.first_at IS
  'time of the first report; the response belongs to that day, whenever it is corrected';
COMMENT ON COLUMN tcl.usage_fact.provider IS 'every whole number of the vendor by its path';

CREATE INDEX usage_fact_first ON tcl.usage_fact (first_at);

-- What one call costs, from some time on. Never changed: a new price is a new row.
CREATE TABLE tcl.tool_price (
  tool     text COLLATE "C" NOT NULL,
  since    timestamptz NOT NULL,
  amount   numeric NOT NULL CHECK (amount >= 0),
  currency text COLLATE "C" NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
  revision text NOT NULL CHECK (octet_length(revision) BETWEEN 1 AND 128),
  PRIMARY KEY (tool, since)
);

-- At most one for each call, whatever is delivered again; written with the settlement. Kept when the
-- call itself is pruned. Without a price and without a reported cost the amount is NULL, not 0.
CREATE TABLE tcl.charge (
  tenant          text COLLATE "C" NOT NULL,
  idempotency_key text COLLATE "C" NOT NULL,
  response_id     text COLLATE "C" NOT NULL,
  tool            text COLLATE "C" NOT NULL,
  fence           bigint NOT NULL,
  amount          numeric CHECK (amount >= 0),
  currency        text COLLATE "C",
  origin          text NOT NULL CHECK (origin IN ('reported', 'estimated', 'absent')),
  price_revision  text,
  charged_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (tenant, idempotency_key),
  CHECK ((amount IS NULL) = (origin = 'absent')),
  CHECK ((amount IS NULL) = (currency IS NULL)),
  CHECK ((price_revision IS NULL) = (origin <> 'estimated'))
);

CREATE INDEX charge_charged ON tcl.charge (charged_at);

RESET ROLE;
