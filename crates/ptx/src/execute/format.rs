//! The conversions of `printf`, as the C library formats them.

/// A conversion of `printf`.
#[derive(Debug, Default)]
pub(super) struct Spec {
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    pub(super) star_width: bool,
    pub(super) precision: Option<usize>,
    pub(super) star_precision: bool,
    long: bool,
    short: u8,
    pub(super) conversion: u8,
}

/// The widest field.
const WIDEST: usize = 1024;

impl Spec {
    /// Reads what follows `%`, and says how many bytes that is.
    pub(super) fn parse(text: &[u8]) -> (Self, usize) {
        let mut spec = Self::default();
        let mut at = 0;
        let byte = |at: usize| text.get(at).copied().unwrap_or(0);
        loop {
            match byte(at) {
                b'-' => spec.left = true,
                b'+' => spec.plus = true,
                b' ' => spec.space = true,
                b'#' => spec.alternate = true,
                b'0' => spec.zero = true,
                // Digits are in no groups: the locale is that of C.
                b'\'' => {}
                _ => break,
            }
            at += 1;
        }
        let number = |at: &mut usize| {
            let mut value = 0_usize;
            while byte(*at).is_ascii_digit() {
                value = (value * 10 + usize::from(byte(*at) - b'0')).min(WIDEST);
                *at += 1;
            }
            value
        };
        if byte(at) == b'*' {
            (spec.star_width, at) = (true, at + 1);
        } else {
            spec.width = number(&mut at);
        }
        if byte(at) == b'.' {
            at += 1;
            if byte(at) == b'*' {
                (spec.star_precision, at) = (true, at + 1);
            } else {
                spec.precision = Some(number(&mut at));
            }
        }
        loop {
            match byte(at) {
                b'l' | b'j' | b'z' | b't' | b'L' => spec.long = true,
                b'h' => spec.short += 1,
                _ => break,
            }
            at += 1;
        }
        spec.conversion = byte(at);
        (spec, (at + 1).min(text.len()))
    }

    pub(super) fn take_star(&mut self, value: i32) {
        if self.star_width {
            self.star_width = false;
            self.left |= value < 0;
            self.width = (value.unsigned_abs() as usize).min(WIDEST);
        } else {
            self.precision = usize::try_from(value).ok().map(|most| most.min(WIDEST));
        }
    }

    /// Whether the conversion is one. The text of others is printed as it is, and takes no argument.
    pub(super) fn is_known(&self) -> bool {
        b"diuxXocCpsfFeEgGaA%".contains(&self.conversion)
    }

    /// The bytes of the argument.
    pub(super) fn bytes(&self) -> u8 {
        match self.conversion {
            b'd' | b'i' | b'u' | b'x' | b'X' | b'o' if !self.long => 4,
            b'c' | b'C' => 4,
            _ => 8,
        }
    }

    pub(super) fn pad(&self, out: &mut Vec<u8>, text: &[u8]) {
        let fill = self.width.saturating_sub(text.len());
        if !self.left {
            out.resize(out.len() + fill, b' ');
        }
        out.extend_from_slice(text);
        if self.left {
            out.resize(out.len() + fill, b' ');
        }
    }

    pub(super) fn value(&self, out: &mut Vec<u8>, value: u64) {
        match self.conversion {
            b'd' | b'i' => {
                let value = if self.long {
                    value.cast_signed()
                } else {
                    i64::from(self.shortened(value) as i32)
                };
                let value = match (self.long, self.short) {
                    (false, 1) => i64::from(value as i16),
                    (false, 2..) => i64::from(value as i8),
                    _ => value,
                };
                self.number(out, value < 0, "", value.unsigned_abs().to_string());
            }
            b'u' => self.unsigned(out, "", self.shortened(value).to_string()),
            b'x' if self.alternate && value != 0 => {
                self.unsigned(out, "0x", format!("{:x}", self.shortened(value)))
            }
            b'X' if self.alternate && value != 0 => {
                self.unsigned(out, "0X", format!("{:X}", self.shortened(value)))
            }
            b'x' => self.unsigned(out, "", format!("{:x}", self.shortened(value))),
            b'X' => self.unsigned(out, "", format!("{:X}", self.shortened(value))),
            b'o' if self.alternate => {
                // The first digit is a zero, and a precision may have made it one.
                let digits = format!("0{:o}", self.shortened(value));
                let digits = if digits == "00" { "0".to_owned() } else { digits };
                let precision = self.precision.map(|least| least.max(1));
                Self { precision, ..*self }.unsigned(out, "", digits)
            }
            b'o' => self.unsigned(out, "", format!("{:o}", self.shortened(value))),
            b'c' | b'C' => self.pad(out, &[value as u8]),
            b'p' if value == 0 => self.pad(out, b"(nil)"),
            b'p' => self.number(out, false, "0x", format!("{value:x}")),
            _ => self.float(out, f64::from_bits(value)),
        }
    }

    fn shortened(&self, value: u64) -> u64 {
        match (self.long, self.short) {
            (true, _) => value,
            (false, 0) => value & 0xffff_ffff,
            (false, 1) => value & 0xffff,
            _ => value & 0xff,
        }
    }

    fn unsigned(&self, out: &mut Vec<u8>, prefix: &str, digits: String) {
        self.placed(out, prefix, digits);
    }

    fn number(&self, out: &mut Vec<u8>, negative: bool, prefix: &str, digits: String) {
        let sign = match (negative, self.plus, self.space) {
            (true, ..) => "-",
            (_, true, _) => "+",
            (_, _, true) => " ",
            _ => "",
        };
        self.placed(out, &format!("{sign}{prefix}"), digits);
    }

    /// Digits behind their prefix, filled to the precision and the width.
    fn placed(&self, out: &mut Vec<u8>, prefix: &str, digits: String) {
        let least = match self.precision {
            Some(least) => least,
            None if self.zero && !self.left => self.width.saturating_sub(prefix.len()),
            None => 1,
        };
        let zeros = least.saturating_sub(digits.len());
        let digits =
            if self.precision == Some(0) && digits == "0" { String::new() } else { digits };
        self.pad(out, format!("{prefix}{}{digits}", "0".repeat(zeros)).as_bytes());
    }

    fn float(&self, out: &mut Vec<u8>, value: f64) {
        let (precision, magnitude) = (self.precision.unwrap_or(6), value.abs());
        let (prefix, mut digits) = match self.conversion.to_ascii_lowercase() {
            _ if value.is_nan() => ("", "nan".to_owned()),
            _ if value.is_infinite() => ("", "inf".to_owned()),
            b'f' => ("", format!("{magnitude:.precision$}")),
            b'e' => ("", exponential(magnitude, precision)),
            b'a' => ("0x", hexadecimal(magnitude, self.precision)),
            _ => ("", general(magnitude, precision.max(1), self.alternate)),
        };
        if self.alternate && value.is_finite() && !digits.contains('.') {
            let at = digits.find(['e', 'p']).unwrap_or(digits.len());
            digits.insert(at, '.');
        }
        let plain = Self { precision: None, zero: self.zero && value.is_finite(), ..*self };
        // The sign of a NaN is one, too.
        let is_negative = value.is_sign_negative();
        let mut prefix = prefix.to_owned();
        if self.conversion.is_ascii_uppercase() {
            prefix.make_ascii_uppercase();
            digits.make_ascii_uppercase();
        }
        plain.number(out, is_negative, &prefix, digits);
    }
}

/// `%e`: at least two digits of exponent.
fn exponential(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// `%g`
fn general(value: f64, precision: usize, alternate: bool) -> String {
    let exponent = if value == 0.0 {
        0
    } else {
        let text = format!("{value:.*e}", precision - 1);
        text.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0)
    };
    if exponent < -4 || exponent >= precision as i32 {
        let text = exponential(value, precision - 1);
        let (digits, rest) = text.split_once('e').unwrap_or((&text, "+00"));
        return format!("{}e{rest}", trimmed(digits, alternate));
    }
    let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
    trimmed(&format!("{value:.decimals$}"), alternate).to_owned()
}

fn trimmed(digits: &str, alternate: bool) -> &str {
    if alternate || !digits.contains('.') {
        digits
    } else {
        digits.trim_end_matches('0').trim_end_matches('.')
    }
}

/// The digits of a double in hexadecimal, behind the point.
const HEX_DIGITS: usize = 13;

/// `%a`, without the prefix: all digits, or so many behind the point, rounded to nearest, ties to even.
fn hexadecimal(value: f64, precision: Option<usize>) -> String {
    let bits = value.to_bits();
    let (exponent, mantissa) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
    let (lead, exponent) = match (exponent, mantissa) {
        (0, 0) => (0, 0),
        (0, _) => (0, -1022),
        _ => (1, exponent - 1023),
    };
    let count = precision.unwrap_or(HEX_DIGITS).min(HEX_DIGITS);
    let cut = 4 * (HEX_DIGITS - count);
    let all = lead << 52 | mantissa;
    let (kept, rest, half) = (all >> cut, all & ((1 << cut) - 1), (1_u64 << cut) >> 1);
    let up = rest > half || rest == half && half > 0 && kept & 1 == 1;
    let kept = kept + u64::from(up);
    let (lead, tail) = (kept >> (4 * count), kept & ((1 << (4 * count)) - 1));
    let mut digits = if count > 0 { format!("{tail:0count$x}") } else { String::new() };
    match precision {
        Some(more) => digits.extend(std::iter::repeat_n('0', more.saturating_sub(HEX_DIGITS))),
        None => digits.truncate(digits.trim_end_matches('0').len()),
    }
    let point = if digits.is_empty() { "" } else { "." };
    format!("{lead:x}{point}{digits}p{exponent:+}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(format: &str, value: u64) -> String {
        let (spec, used) = Spec::parse(&format.as_bytes()[1..]);
        assert_eq!(used + 1, format.len());
        let mut out = Vec::new();
        spec.value(&mut out, value);
        String::from_utf8(out).expect("text")
    }

    /// The expected texts are an H100's.
    #[test]
    fn numbers_are_printed_as_by_an_h100() {
        let pi = std::f64::consts::PI;
        for (format, value, expected) in [
            ("%012.0a", -1.5, "-0x000002p+0"),
            ("%+-1.a", 2.5, "+0x1p+1"),
            ("% +5.3A", pi, "+0X1.922P+1"),
            ("%-5.10a", 1.5, "0x1.8000000000p+0"),
            ("%5.10a", 1e-320, "0x0.0000000000p-1022"),
            ("% #a", 0.0, " 0x0.p+0"),
            ("%#.0e", 99999.95, "1.e+05"),
            ("%#+5.g", 2.5, "  +2."),
            ("% #12G", 123456.0, "     123456."),
            ("%#.F", 0.5, "0."),
            ("%+12g", f64::from_bits(0xfff8 << 48), "        -nan"),
            ("% 020.0a", 0.5, " 0x00000000000001p-1"),
        ] {
            assert_eq!(printed(format, value.to_bits()), expected, "{format}");
        }
        for (format, value, expected) in [
            ("%+12p", 0x1234_abcd, " +0x1234abcd"),
            ("%08p", 1, "0x000001"),
            ("%.20p", 3, "0x00000000000000000003"),
            ("%+p", 0, "(nil)"),
            ("%#o", 0, "0"),
            ("%'d", 1_234_567, "1234567"),
        ] {
            assert_eq!(printed(format, value), expected, "{format}");
        }
    }

    #[test]
    fn octal_numbers_of_another_form_begin_with_one_zero() {
        assert_eq!(printed("%#.0o", 0), "0");
        assert_eq!(printed("%#.4o", 8), "0010");
        assert_eq!(printed("%#o", 8), "010");
    }
}
