// GRADCHECK/1 at level `frames`, standard library only: rustc -O --edition 2021 grads.rs
// Copy this file, keep part 1, put your own operators into part 2. Print with eprintln! alone.
use std::io::{stdin, stdout, BufRead, Read, Write};
use std::panic::catch_unwind;
// ── part 1: frames and the conversation ──
const MAGIC: &[u8] = b"GRDC\r\n\x1a\n";
const DEPTH: usize = 64;
const LACKS: &str = r#""kind":"unsupported","reason""#;
const FAILS: &str = r#""kind":"error","message""#;
type Fault = (&'static str, &'static str); // LACKS or FAILS, and why

#[derive(Clone)] struct Array {
    key: String, // role and name, such as "input.x"
    dtype: String,
    shape: Vec<usize>,
    data: Vec<f64>, // in C order; rounded to `dtype` when it is sent
}

fn space(text: &str) -> &str {
    text.trim_start_matches(|c: char| " \t\r\n".contains(c))
}

/// The JSON value that `text` begins with, as it is written, and what follows it.
fn value(text: &str, depth: usize) -> Option<(&str, &str)> {
    if text.starts_with(|c| c == '{' || c == '[') {
        return Some(text.split_at(text.len() - items(text, depth)?.1.len()));
    }
    if text.starts_with('"') {
        let mut chars = text.char_indices().skip(1);
        loop {
            match chars.next()? {
                (end, '"') => return Some(text.split_at(end + 1)),
                (_, '\\') if !"\"\\/bfnrtu".contains(chars.next()?.1) => return None,
                (_, c) if c < ' ' => return None,
                _ => (),
            }
        }
    }
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c));
    let (word, rest) = text.split_at(end.unwrap_or(text.len()));
    let number = word.chars().all(|c| "+-.eE0123456789".contains(c)) && word.parse::<f64>().is_ok();
    (number || ["true", "false", "null"].contains(&word)).then_some((word, rest))
}

/// The items of a list, or keys and values of an object in turn, and what follows.
fn items(text: &str, depth: usize) -> Option<(Vec<&str>, &str)> {
    let close = if text.starts_with('{') { '}' } else { ']' };
    let (mut found, mut rest) = (vec![], space(&text[1..]));
    while !(found.is_empty() && rest.starts_with(close)) {
        let key = close == '}' && found.len() % 2 == 0;
        let (item, after) = value(rest, depth.checked_sub(1)?)?;
        (!key || item.starts_with('"')).then_some(found.push(item))?;
        rest = space(after);
        if !key && rest.starts_with(close) {
            break;
        }
        rest = space(rest.strip_prefix(if key { ':' } else { ',' })?);
    }
    Some((found, &rest[1..]))
}

fn list(text: &str, open: char) -> Vec<&str> {
    text.starts_with(open).then(|| items(text, DEPTH)).flatten().map_or(vec![], |(found, _)| found)
}
/// The value of a key, or "null"; as a word without its quotes, escapes as they are written.
fn member<'a>(object: &'a str, key: &str) -> &'a str {
    let pairs = list(object, '{');
    let pair = pairs.chunks(2).rev().find(|pair| pair[0].trim_matches('"') == key);
    pair.map_or("null", |pair| pair[1])
}
fn word<'a>(object: &'a str, key: &str) -> &'a str {
    member(object, key).trim_matches('"')
}

fn unpack(block: &str, payload: &[u8]) -> Option<Array> {
    let lengths = list(member(block, "shape"), '[').into_iter().map(|n| n.parse().ok());
    let shape = lengths.collect::<Option<Vec<usize>>>()?;
    let count = shape.iter().try_fold(1, |product: usize, n| product.checked_mul(*n))?;
    let (width, number): (usize, fn(&[u8]) -> f64) = match word(block, "dtype") {
        "float64" => (8, |b| f64::from_le_bytes(b.try_into().unwrap())),
        "float32" => (4, |b| f32::from_le_bytes(b.try_into().unwrap()).into()),
        "int64" => (8, |b| i64::from_le_bytes(b.try_into().unwrap()) as f64),
        _ => return None,
    };
    let (start, size) = (member(block, "offset"), member(block, "nbytes"));
    let (start, size) = (start.parse::<usize>().ok()?, size.parse::<usize>().ok()?);
    let bytes = payload.get(start..start.checked_add(size)?)?;
    (count.checked_mul(width)? == size).then_some(())?;
    let key = format!("{}.{}", word(block, "role"), word(block, "name"));
    let data = bytes.chunks(width).map(number).collect();
    Some(Array { key, dtype: word(block, "dtype").into(), shape, data })
}

fn send(said: &str, seq: &str, arrays: &[Array]) {
    let (mut blocks, mut payload) = (vec![], vec![]);
    for Array { key, dtype, shape, data } in arrays {
        let (offset, (role, name)) = (payload.len(), key.split_once('.').unwrap());
        for number in data {
            let (wide, narrow) = (number.to_le_bytes(), (*number as f32).to_le_bytes());
            payload.extend_from_slice(if dtype == "float32" { &narrow } else { &wide });
        }
        let nbytes = payload.len() - offset;
        payload.resize((payload.len() + 63) / 64 * 64, 0);
        let place = format!(r#""shape":{shape:?},"offset":{offset},"nbytes":{nbytes}"#);
        blocks.push(format!(r#"{{"role":"{role}","name":"{name}","dtype":"{dtype}",{place}}}"#));
    }
    let header = format!(r#"{{{said},"seq":{seq},"blocks":[{}]}}"#, blocks.join(","));
    let (size, rest) = ((header.len() as u32).to_le_bytes(), (payload.len() as u64).to_le_bytes());
    let frame = [MAGIC, &size, &rest, header.as_bytes(), &payload].concat();
    stdout().write_all(&frame).and_then(|()| stdout().flush()).expect("somebody reads");
}

fn answer(header: &str, payload: &[u8]) -> Result<(&'static str, Vec<Array>), Fault> {
    match word(header, "kind") {
        "hello" => Ok((HELLO, vec![])),
        "ping" => Ok((r#""kind":"pong""#, vec![])),
        "reset" => Ok((r#""kind":"done""#, vec![])), // there is no cache to forget
        "run" if !["vjp", "forward"].contains(&word(header, "ask")) => Err((LACKS, "no such ask")),
        "run" => {
            let blocks = list(member(header, "blocks"), '[');
            let arrays: Option<Vec<_>> = blocks.iter().map(|b| unpack(b, payload)).collect();
            let arrays = arrays.ok_or((FAILS, "a block that cannot be read here"))?;
            let (op, vjp) = (word(header, "op"), word(header, "ask") == "vjp");
            Ok((r#""kind":"result""#, call(op, vjp, member(header, "attrs"), &arrays)?))
        }
        _ => Err((FAILS, "no such kind of message")),
    }
}

fn bytes(count: u64) -> Option<Vec<u8>> {
    let mut found = vec![]; // grows as bytes arrive: a claimed length takes no memory
    stdin().lock().take(count).read_to_end(&mut found).ok()?;
    (found.len() as u64 == count).then_some(found)
}

fn serve() -> Option<()> {
    loop { // None: what arrived is no frame
        if stdin().lock().fill_buf().ok()?.is_empty() { return Some(()) }
        let prefix = bytes(20)?;
        let size = u32::from_le_bytes(prefix[8..12].try_into().ok()?).into();
        let rest = u64::from_le_bytes(prefix[12..20].try_into().ok()?);
        (prefix.starts_with(MAGIC) && size <= 1 << 24 && rest <= 1 << 36).then_some(())?;
        let (text, payload) = (String::from_utf8(bytes(size)?).ok()?, bytes(rest)?);
        let (header, after) = value(space(&text), DEPTH)?;
        (header.starts_with('{') && space(after).is_empty()).then_some(())?;
        if word(header, "kind") == "bye" { return Some(()) }
        match catch_unwind(|| answer(header, &payload)).unwrap_or(Err((FAILS, "it panicked"))) {
            Ok((said, arrays)) => send(said, member(header, "seq"), &arrays),
            Err((kind, why)) => send(&format!("{kind}:\"{why}\""), member(header, "seq"), &[]),
        }
    }
}

fn main() {
    if serve().is_none() {
        send(&format!("{FAILS}:\"what arrived is no frame\""), "null", &[]);
        std::process::exit(1);
    }
}

// ── part 2: the operators ──
const HELLO: &str = r#""kind":"hello","protocol":1,
 "implementation":{"name":"grads.rs","version":"1","language":"Rust"},"ops":{"rms_norm":
 {"asks":["vjp","forward"],"dtypes":["float64","float32"],"attrs":["eps","unit_offset"]},
 "silu":{"asks":["vjp","forward"],"dtypes":["float64","float32"],"attrs":[]}}"#;

fn call(op: &str, vjp: bool, attrs: &str, arrays: &[Array]) -> Result<Vec<Array>, Fault> {
    ["rms_norm", "silu"].contains(&op).then_some(()).ok_or((LACKS, "no such operator"))?;
    let operator = if op == "silu" { silu } else { rms_norm };
    let find = |key| arrays.iter().find(|array| array.key == key);
    let (x, w) = (find("input.x").ok_or((FAILS, "there is no x"))?, find("input.w"));
    let ct = if vjp { find("cotangent.0") } else { Some(x) }.filter(|ct| ct.shape == x.shape);
    let [y, dw] = operator(x, w, ct.ok_or((FAILS, "no cotangent like x"))?, vjp, attrs);
    let dw = w.filter(|_| vjp).map(|w| Array { key: "gradient.w".into(), data: dw, ..w.clone() });
    let key = if vjp { "gradient.x" } else { "output.0" }.into();
    Ok(std::iter::once(Array { key, data: y, ..x.clone() }).chain(dw).collect())
}

fn silu(x: &Array, _: Option<&Array>, ct: &Array, _: bool, _: &str) -> [Vec<f64>; 2] {
    // WRONG, for show: vjp lacks the term ct x s (1 - s)
    let y = x.data.iter().zip(&ct.data).map(|(v, c)| c / (1.0 + (-v).exp()));
    [y.collect(), vec![]]
}
fn rms_norm(x: &Array, w: Option<&Array>, ct: &Array, vjp: bool, attrs: &str) -> [Vec<f64>; 2] {
    let (d, eps) = (x.shape[x.shape.len() - 1], member(attrs, "eps").parse::<f64>().unwrap());
    let shift: f64 = u8::from(member(attrs, "unit_offset") == "true").into();
    let gain = w.map_or(vec![1.0; d], |w| w.data.iter().map(|v| v + shift).collect());
    let (mut y, mut dw) = (vec![], vec![0.0; gain.len()]);
    for (x, ct) in x.data.chunks(d.max(1)).zip(ct.data.chunks(d.max(1))) {
        let sum = |f: &dyn Fn(usize) -> f64| (0..d).map(f).sum::<f64>() / d as f64;
        let r = 1.0 / (sum(&|j| x[j] * x[j]) + eps).sqrt();
        let mean = sum(&|j| ct[j] * gain[j] * x[j] * r);
        for j in 0..d {
            let n = x[j] * r;
            y.push(if vjp { r * (ct[j] * gain[j] - n * mean) } else { n * gain[j] });
            dw[j] += ct[j] * n;
        }
    }
    [y, dw]
}
