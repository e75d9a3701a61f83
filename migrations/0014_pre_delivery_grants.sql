-- Who may publish, record and read totals. As everywhere: functions only, no table.
SET LOCAL ROLE tcl_owner;

GRANT EXECUTE ON FUNCTION
  tcl.outbox_take(integer, bigint),
  tcl.outbox_done(bigint[]),
  tcl.outbox_waiting()
TO tcl_relay;

GRANT EXECUTE ON FUNCTION
  tcl.record_usage(text, text, text, text, text, bigint, bigint, bigint, bigint, bigint, jsonb,
                   timestamptz, text, integer, bigint)
TO tcl_meter;

GRANT EXECUTE ON FUNCTION
  tcl.set_price(text, numeric, text, text)
TO tcl_operator;

GRANT EXECUTE ON FUNCTION
  tcl.outbox_waiting(),
  tcl.usage_totals(text[], timestamptz, timestamptz, text),
  tcl.charge_totals(text[], timestamptz, timestamptz, text),
  tcl.usage_gaps(timestamptz, timestamptz, interval, text, integer)
TO tcl_operator, tcl_reader;

RESET ROLE;
