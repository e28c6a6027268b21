//! Reads one line of records fast: it jumps over what nobody uses, above all the long array `inter_chunk_latency`. Where a line is not as
//! aiperf writes those of answered requests, it gives up, and serde decides what that is.

use super::records::{Measured, Outcome, Record};

/// The record of an answered request; `Ok(None)`: one of the warm-up. `Err`: not for us.
pub fn answered(line: &[u8]) -> Result<Option<Record>, Odd> {
    let mut reader = Reader { rest: line };
    let mut times = Times::default();
    let mut metrics: Option<Metrics> = None;
    reader.object(|reader, key| match key {
        b"metadata" => times.read(reader),
        b"metrics" => {
            metrics = Some(Metrics::read(reader)?);
            Ok(())
        }
        // What failed has words of a server in it.
        b"error" => Err(Odd),
        _ => reader.skip(),
    })?;
    if !reader.rest.trim_ascii().is_empty() {
        return Err(Odd);
    }
    let (start_ns, end_ns) = times.start_ns.zip(times.end_ns).ok_or(Odd)?;
    match times.phase {
        Some(Phase::Warmup) => Ok(None),
        Some(Phase::Profiling) => {
            let metrics = metrics.ok_or(Odd)?;
            let measured = Measured { latency_ms: metrics.latency_ms.ok_or(Odd)?, ..metrics.rest };
            Ok(Some(Record { start_ns, end_ns, issued_ns: times.issued_ns, outcome: Outcome::Answered(measured) }))
        }
        None => Err(Odd),
    }
}

/// A line that is not as expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Odd;

enum Phase {
    Warmup,
    Profiling,
}

#[derive(Default)]
struct Times {
    phase: Option<Phase>,
    start_ns: Option<u64>,
    end_ns: Option<u64>,
    issued_ns: Option<u64>,
}

impl Times {
    fn read(&mut self, reader: &mut Reader<'_>) -> Result<(), Odd> {
        reader.object(|reader, key| {
            match key {
                b"benchmark_phase" => {
                    self.phase = match reader.string()? {
                        b"warmup" => Some(Phase::Warmup),
                        b"profiling" => Some(Phase::Profiling),
                        _ => return Err(Odd),
                    }
                }
                b"request_start_ns" => self.start_ns = Some(reader.whole()?),
                b"request_end_ns" => self.end_ns = Some(reader.whole()?),
                b"credit_issued_ns" => self.issued_ns = Some(reader.whole()?),
                _ => reader.skip()?,
            }
            Ok(())
        })
    }
}

#[derive(Default)]
struct Metrics {
    latency_ms: Option<f64>,
    rest: Measured,
}

impl Metrics {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Odd> {
        let mut metrics = Self::default();
        reader.object(|reader, key| {
            let place = match key {
                b"request_latency" => &mut metrics.latency_ms,
                b"time_to_first_token" => &mut metrics.rest.ttft_ms,
                b"time_to_first_output_token" => &mut metrics.rest.first_answer_ms,
                b"inter_token_latency" => &mut metrics.rest.itl_ms,
                b"input_sequence_length" => &mut metrics.rest.input_tokens,
                b"output_sequence_length" => &mut metrics.rest.output_tokens,
                b"usage_completion_tokens" => &mut metrics.rest.usage_output_tokens,
                b"http_req_chunks_received" => &mut metrics.rest.chunks,
                _ => return reader.skip(),
            };
            let mut found = None;
            reader.object(|reader, key| match key {
                b"value" => {
                    found = Some(reader.number()?);
                    Ok(())
                }
                _ => reader.skip(),
            })?;
            *place = Some(found.ok_or(Odd)?);
            Ok(())
        })?;
        Ok(metrics)
    }
}

/// What is left of a line.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// The next byte that is no space, taken.
    fn next(&mut self) -> Result<u8, Odd> {
        let (byte, rest) = self.rest.trim_ascii_start().split_first().ok_or(Odd)?;
        self.rest = rest;
        Ok(*byte)
    }

    fn expect(&mut self, byte: u8) -> Result<(), Odd> {
        if self.next()? == byte { Ok(()) } else { Err(Odd) }
    }

    /// An object, whose values `each` takes by their keys.
    fn object(&mut self, mut each: impl FnMut(&mut Self, &[u8]) -> Result<(), Odd>) -> Result<(), Odd> {
        self.expect(b'{')?;
        if self.rest.first() == Some(&b'}') {
            return self.expect(b'}');
        }
        loop {
            let key = self.string()?;
            self.expect(b':')?;
            each(self, key)?;
            match self.next()? {
                b',' => {}
                b'}' => return Ok(()),
                _ => return Err(Odd),
            }
        }
    }

    /// A string without escapes.
    fn string(&mut self) -> Result<&'a [u8], Odd> {
        self.expect(b'"')?;
        let end = self.rest.iter().position(|byte| *byte == b'"').ok_or(Odd)?;
        let (string, rest) = self.rest.split_at(end);
        if string.contains(&b'\\') || std::str::from_utf8(string).is_err() {
            return Err(Odd);
        }
        self.rest = &rest[1..];
        Ok(string)
    }

    fn digits(&mut self) -> Result<&'a str, Odd> {
        self.rest = self.rest.trim_ascii_start();
        let end = self.rest.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E')).ok_or(Odd)?;
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        // What JSON has no such numbers of: `.5`, `1.`, `01`.
        let unsigned = digits.strip_prefix(b"-").unwrap_or(digits);
        let odd = !unsigned.first().is_some_and(u8::is_ascii_digit) || !digits.last().is_some_and(u8::is_ascii_digit);
        let padded = unsigned.len() > 1 && unsigned[0] == b'0' && unsigned[1].is_ascii_digit();
        if odd || padded { Err(Odd) } else { std::str::from_utf8(digits).map_err(|_| Odd) }
    }

    fn number(&mut self) -> Result<f64, Odd> {
        let digits = self.digits()?;
        // `1.e5` is none.
        if digits.contains(".e") || digits.contains(".E") {
            return Err(Odd);
        }
        digits.parse::<f64>().ok().filter(|value| value.is_finite()).ok_or(Odd)
    }

    fn whole(&mut self) -> Result<u64, Odd> {
        self.digits()?.parse().map_err(|_| Odd)
    }

    /// Jumps over a value: by its quotes and brackets alone.
    fn skip(&mut self) -> Result<(), Odd> {
        let (mut at, mut depth) = (0, 0_usize);
        loop {
            match self.rest.get(at).ok_or(Odd)? {
                b'"' => {
                    at += 1;
                    loop {
                        match self.rest.get(at).ok_or(Odd)? {
                            b'"' => break,
                            b'\\' => at += 2,
                            // Nothing but ASCII, or somebody has to look whether it is UTF-8.
                            0x20..=0x7f => at += 1,
                            _ => return Err(Odd),
                        }
                    }
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' if depth > 0 => depth -= 1,
                b'}' | b',' if depth == 0 => break,
                0x20..=0x7f => {}
                _ => return Err(Odd),
            }
            at += 1;
        }
        self.rest = &self.rest[at..];
        if at == 0 { Err(Odd) } else { Ok(()) }
    }
}
