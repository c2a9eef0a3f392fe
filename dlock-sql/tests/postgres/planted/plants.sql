-- What a hostile user puts in the schema `public`. Each part counts its use in the sequence `trap`.
SET search_path = pg_catalog;
CREATE SEQUENCE public.trap;
GRANT ALL ON SEQUENCE public.trap TO PUBLIC;

-- Operators of all names that expressions have, for each pair of types.
DO $plant$
DECLARE
  kinds text[] := ARRAY['text', 'bigint', 'integer', 'smallint', 'numeric', 'double precision',
    'boolean', 'name', 'oid', '"char"', 'interval', 'timestamptz', 'text[]', 'bigint[]', 'regclass'];
  one text; other text; name text; result text; pair integer := 0;
BEGIN
  FOREACH one IN ARRAY kinds LOOP
    FOREACH other IN ARRAY kinds LOOP
      pair := pair + 1;
      FOREACH result IN ARRAY ARRAY['boolean', 'text', one] LOOP
        EXECUTE format(
          'CREATE FUNCTION public.%I(%s, %s) RETURNS %s LANGUAGE plpgsql AS $$ BEGIN
             PERFORM pg_catalog.nextval(''public.trap''); RETURN NULL; END $$',
          'plant_' || pair || '_' || result, one, other, result);
        FOREACH name IN ARRAY CASE
          WHEN result = 'boolean' THEN
            ARRAY['=', '<>', '<', '<=', '>', '>=', '~~', '!~~', '~', '@>', '<@']
          WHEN result = 'text' THEN ARRAY['||']
          ELSE ARRAY['+', '-', '*', '/', '%', '<<', '>>', '|', '&'] END
        LOOP
          BEGIN
            EXECUTE format(
              'CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.%I)',
              name, one, other, 'plant_' || pair || '_' || result);
          EXCEPTION WHEN duplicate_function THEN NULL;
          END;
        END LOOP;
        EXIT WHEN result = one;
      END LOOP;
    END LOOP;
  END LOOP;
END $plant$;

-- Functions with the names and the arguments of those of the catalog.
DO $plant$
DECLARE
  found record;
BEGIN
  FOR found IN
    SELECT DISTINCT ON (p.proname, p.proargtypes)
      p.proname, oidvectortypes(p.proargtypes) AS arguments, format_type(p.prorettype, NULL) AS result
    FROM pg_proc AS p
    WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND NOT p.proretset
      AND p.provariadic = 0 AND p.prorettype <> 'internal'::regtype AND p.pronargs < 4
      AND NOT EXISTS (SELECT FROM pg_type AS t
        WHERE t.typtype = 'p' AND (t.oid = p.prorettype OR t.oid = ANY (p.proargtypes)))
  LOOP
    EXECUTE format(
      'CREATE FUNCTION public.%I(%s) RETURNS %s LANGUAGE plpgsql AS $$ BEGIN
         PERFORM pg_catalog.nextval(''public.trap''); RETURN NULL; END $$',
      found.proname, found.arguments, found.result);
  END LOOP;
  FOR found IN
    SELECT * FROM (VALUES
      ('concat', 'text, text, bigint, text', 'text'), ('concat', 'text, bigint, text', 'text'),
      ('array_position', 'text[], text', 'integer'), ('unnest', 'text[]', 'SETOF text'),
      ('unnest', 'text[], bigint[]', 'SETOF text'), ('unnest', 'text[], text[]', 'SETOF text'),
      ('unnest', 'text[], bigint[], bigint[]', 'SETOF text'),
      ('concat_ws', 'text, text, text, name', 'text'), ('concat_ws', 'text, name, text, name', 'text'),
      ('count', 'regclass', 'bigint'), ('string_agg', 'text, text', 'text'), ('max', 'interval', 'interval')
    ) AS more (proname, arguments, result)
  LOOP
    EXECUTE format(
      'CREATE FUNCTION public.%I(%s) RETURNS %s LANGUAGE plpgsql AS $$ BEGIN
         PERFORM pg_catalog.nextval(''public.trap''); RETURN %s; END $$',
      found.proname, found.arguments, found.result,
      CASE WHEN starts_with(found.result, 'SETOF') THEN '' ELSE 'NULL' END);
  END LOOP;
END $plant$;

-- Relations with the names of those of the catalog.
DO $plant$
DECLARE
  found record;
BEGIN
  FOR found IN
    SELECT c.relname FROM pg_class AS c
    WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind IN ('r', 'v')
      AND has_table_privilege(c.oid, 'SELECT')
  LOOP
    BEGIN
      EXECUTE format(
        'CREATE VIEW public.%1$I AS SELECT * FROM pg_catalog.%1$I
           WHERE pg_catalog.nextval(''public.trap'') > 0', found.relname);
      EXECUTE format('GRANT SELECT ON public.%I TO PUBLIC', found.relname);
    EXCEPTION WHEN others THEN NULL;
    END;
  END LOOP;
END $plant$;

-- Types with the names of those of the catalog.
DO $plant$
DECLARE
  found record;
BEGIN
  FOR found IN
    SELECT t.typname FROM pg_type AS t
    WHERE t.typnamespace = 'pg_catalog'::regnamespace AND t.typtype = 'b' AND t.typelem = 0
  LOOP
    BEGIN
      EXECUTE format(
        'CREATE DOMAIN public.%1$I AS pg_catalog.%1$I CHECK (pg_catalog.nextval(''public.trap'') > 0)',
        found.typname);
    EXCEPTION WHEN others THEN NULL;
    END;
  END LOOP;
END $plant$;
