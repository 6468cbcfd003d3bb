-- Work of the kind of SQLite's speedtest1: the answers depend on nothing but this script.
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA threads = 2;

CREATE TABLE number (a INTEGER, b INTEGER, c TEXT);
INSERT INTO number
  WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 150000)
  SELECT i, (i * 7919 + i / 13) % 100003, printf('%d thousand %d, %.*c', i / 1000, i % 1000, i % 40, 'z') FROM n;
SELECT count(*), sum(a), sum(b), sum(length(c)) FROM number;

SELECT sum(n) FROM (SELECT b % 1000 AS g, count(*) AS n, group_concat(c) AS t FROM number GROUP BY g HAVING length(t) > 10);

CREATE INDEX number_b ON number (b);
CREATE UNIQUE INDEX number_a ON number (a);
CREATE INDEX number_c ON number (c, b);
SELECT count(*), sum(length(x.c) + length(y.c)) FROM number x JOIN number y ON y.b = x.a WHERE x.b BETWEEN 1000 AND 40000;

UPDATE number SET b = b * 2, c = upper(c) || ' (' || b || ')' WHERE a % 3 = 0;
SELECT sum(b), sum(length(c)), max(c), min(c) FROM number;
DELETE FROM number WHERE a % 7 = 0;
INSERT INTO number SELECT a + 1000000, b, replace(c, 'thousand', 'mille') FROM number WHERE a % 5 = 0;

CREATE VIRTUAL TABLE page USING fts5 (title, body);
INSERT INTO page
  WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 8000)
  SELECT 'page ' || i, printf('alpha%d beta%d gamma%d the quick brown fox %d jumps', i % 97, i % 89, i % 83, i) FROM n;
INSERT INTO page (page) VALUES ('optimize');
SELECT count(*), sum(rowid) FROM page WHERE page MATCH 'alpha5 OR beta7 OR (gamma1 AND quick)';

SELECT sum(length(value)), count(*) FROM (SELECT json_group_array(json_object('a', a, 'c', c)) AS j FROM number
  WHERE a < 20000), json_each(j);

WITH RECURSIVE w(i, s) AS (SELECT 1, 'x' UNION ALL SELECT i + 1, substr(s || i || s, 1, 3000) FROM w WHERE i < 3000)
  SELECT sum(length(s)), max(i) FROM w;

SELECT count(*), sum(r) FROM (SELECT row_number() OVER (PARTITION BY b % 100 ORDER BY c, a) AS r FROM number);
SELECT a, b, c FROM number ORDER BY c DESC, a LIMIT 5;
VACUUM;
PRAGMA integrity_check;
