-- A shop's orders: inserts, an index, joins, updates, full text, JSON.
CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE sale (id INTEGER PRIMARY KEY, customer INTEGER, day TEXT, cents INTEGER, note TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)
  INSERT INTO customer SELECT i, printf('customer %d of %d', i, i % 17) FROM n;
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 6000)
  INSERT INTO sale SELECT i, i * 7919 % 300 + 1, date('2024-01-01', '+' || i % 365 || ' days'), i * 31 % 9973, printf('%.*c', i % 60, 'x') FROM n;
COMMIT;
CREATE INDEX sale_customer ON sale (customer, day);
SELECT name, count(*), sum(cents), group_concat(note) FROM sale JOIN customer ON customer.id = sale.customer
  WHERE day > '2024-03-01' GROUP BY name ORDER BY 3 DESC LIMIT 3;
UPDATE sale SET note = upper(note) || ' paid' WHERE cents % 3 = 0;
DELETE FROM sale WHERE id % 11 = 0;
CREATE VIRTUAL TABLE page USING fts5 (title, body);
INSERT INTO page SELECT name, (SELECT group_concat(day || ' ' || cents, ' ') FROM sale WHERE customer = customer.id) FROM customer;
SELECT count(*) FROM page WHERE page MATCH '2024 AND customer';
SELECT sum(json_extract(value, '$.c')) FROM json_each((SELECT json_group_array(json_object('d', day, 'c', cents)) FROM sale WHERE id < 3000));
SELECT sum(r) FROM (SELECT row_number() OVER (PARTITION BY customer ORDER BY cents DESC, id) AS r FROM sale);
