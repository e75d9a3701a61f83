-- A duty may call its functions and touch no table, so neither an executor in another language nor a
-- bug in ours can step around the rules.
SET LOCAL ROLE tcl_owner;

GRANT EXECUTE ON FUNCTION
  tcl.claim(text, text, text, text, text, tcl.effect_class, bytea, text, interval, timestamptz,
            timestamptz, integer, text, integer, bigint),
  tcl.claim_of(text, text, text),
  tcl.begin_effect(text, text, bigint, interval, text, text, boolean, interval),
  tcl.renew(text, text, bigint, interval),
  tcl.finish(text, text, bigint, tcl.call_state, bytea, text, bytea, text, jsonb),
  tcl.release(text, text, bigint, boolean, text, interval),
  tcl.hold(text, text, bigint, text, text),
  tcl.sweep(integer),
  tcl.redrive(text, text[], integer, interval),
  tcl.fetch_result(text, text)
TO tcl_executor;

GRANT EXECUTE ON FUNCTION tcl.decide(text, text, bytea, text, boolean, interval) TO tcl_approver;

GRANT EXECUTE ON FUNCTION
  tcl.resolve(text, text, bigint, tcl.call_state, text, bytea, text),
  tcl.sweep(integer),
  tcl.prune(interval, integer),
  tcl.declare_timeline(boolean, timestamptz)
TO tcl_operator;

GRANT EXECUTE ON FUNCTION
  tcl.cancel(text, text, text),
  tcl.fetch_result(text, text)
TO tcl_application;

GRANT EXECUTE ON FUNCTION
  tcl.show_call(text, text),
  tcl.history(text, text),
  tcl.list_calls(tcl.call_state, text, integer),
  tcl.waiting()
TO tcl_executor, tcl_approver, tcl_operator, tcl_application, tcl_reader;

RESET ROLE;
