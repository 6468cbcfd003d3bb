//! Counts words of a generated text and prints them as JSON.
use std::collections::BTreeMap;

use serde::Serialize;

#[derive(Serialize)]
struct Report<'a> {
    words: usize,
    counts: BTreeMap<&'a str, u32>,
}

fn main() {
    let text: String = (0u64..20_000)
        .map(|i| format!("word{} and {}th; ", i.wrapping_mul(2_654_435_761) % 997, i % 31))
        .collect();
    let mut counts = BTreeMap::new();
    for word in regex::Regex::new(r"[a-z]+\d*").unwrap().find_iter(&text) {
        *counts.entry(word.as_str()).or_insert(0) += 1;
    }
    let report = Report { words: counts.len(), counts };
    println!("{}", serde_json::to_string_pretty(&report).unwrap());
}
