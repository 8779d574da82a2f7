//! Forms of integer arithmetic and of bits.

use pagewise_ptx::math::bits::{self, Permutation};
use pagewise_ptx::math::compare::Comparison;
use pagewise_ptx::math::integer::{self, Integer};
use pagewise_ptx::math::packed;

use crate::instruction::{Function, Instruction, one};

pub(crate) fn function(form: &Instruction) -> Option<Function> {
    let typed = match form.kind() {
        "u16" => u16::typed(form),
        "s16" => i16::typed(form),
        "u32" => u32::typed(form),
        "s32" => i32::typed(form),
        "u64" => u64::typed(form),
        "s64" => i64::typed(form),
        _ => None,
    };
    typed.or_else(|| words(form)).or_else(|| fields(form)).or_else(|| pairs(form))
}

/// A register as an integer of a type, and back.
trait Register: Integer + 'static {
    fn of(register: u64) -> Self;
    fn register(self) -> u64;
    fn wide(value: Self::Wide) -> u64;
    fn wide_of(register: u64) -> Self::Wide;
    fn add(self, other: Self) -> Self;
    fn subtract(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    fn add_wide(a: Self::Wide, b: Self::Wide) -> Self::Wide;

    /// The forms that have one of the six types.
    fn typed(form: &Instruction) -> Option<Function> {
        let two =
            |f: fn(Self, Self) -> Self| one(move |r| f(Self::of(r[0]), Self::of(r[1])).register());
        match (form.name(), form.part(1)) {
            ("cvt" | "set", _) => None,
            ("setp", part) => comparison::<Self>(part),
            (_, "sat" | "cc" | "relu" | "wrap" | "clamp" | "shiftamt") => None,
            ("add", _) => two(Self::add),
            ("sub", _) => two(Self::subtract),
            ("mul", "lo") => two(Self::multiply),
            ("mul", "hi") => two(Self::multiply_high),
            ("mul", "wide") => one(|r| Self::wide(Self::of(r[0]).multiply_wide(Self::of(r[1])))),
            ("mad", "lo") => {
                one(|r| Self::of(r[0]).multiply(Self::of(r[1])).add(Self::of(r[2])).register())
            }
            ("mad", "hi") if form.part(2) != "sat" => {
                one(|r| Self::of(r[0]).multiply_high(Self::of(r[1])).add(Self::of(r[2])).register())
            }
            ("mad", "wide") => one(|r| {
                let product = Self::of(r[0]).multiply_wide(Self::of(r[1]));
                Self::wide(Self::add_wide(product, Self::wide_of(r[2])))
            }),
            ("div", _) => two(Self::divide),
            ("rem", _) => two(Self::remainder),
            ("min", _) => two(Ord::min),
            ("max", _) => two(Ord::max),
            ("sad", _) => one(|r| {
                Self::of(r[0]).sum_of_absolute_difference(Self::of(r[1]), Self::of(r[2])).register()
            }),
            ("shr", _) => one(|r| Self::of(r[0]).shift_right(r[1] as u32).register()),
            ("abs", _) => one(|r| Self::of(r[0]).absolute().register()),
            ("neg", _) => one(|r| Self::of(r[0]).negate().register()),
            _ => None,
        }
    }
}

macro_rules! register {
    ($($type:ident $unsigned:ident $wide:ident $wide_unsigned:ident,)*) => {$(
        impl Register for $type {
            fn of(register: u64) -> Self {
                register as $type
            }
            fn register(self) -> u64 {
                u64::from(self as $unsigned)
            }
            fn wide(value: $wide) -> u64 {
                value as $wide_unsigned as u64
            }
            fn wide_of(register: u64) -> $wide {
                register as $wide
            }
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn subtract(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            fn multiply(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            fn add_wide(a: $wide, b: $wide) -> $wide {
                a.wrapping_add(b)
            }
        }
    )*};
}

register! {
    u16 u16 u32 u32,
    i16 u16 i32 u32,
    u32 u32 u64 u64,
    i32 u32 i64 u64,
    u64 u64 u128 u128,
    i64 u64 i128 u128,
}

/// `setp` of integers.
fn comparison<T: Register>(part: &str) -> Option<Function> {
    let comparison = match part {
        "eq" => Comparison::Equal,
        "ne" => Comparison::NotEqual,
        "lt" | "lo" => Comparison::Less,
        "le" | "ls" => Comparison::LessOrEqual,
        "gt" | "hi" => Comparison::Greater,
        "ge" | "hs" => Comparison::GreaterOrEqual,
        _ => return None,
    };
    one(move |r| u64::from(comparison.holds(T::of(r[0]), T::of(r[1]))))
}

/// Forms of 32-bit words that have a modifier.
fn words(form: &Instruction) -> Option<Function> {
    let signed =
        |f: fn(i32, i32) -> i32| one(move |r| u64::from(f(r[0] as i32, r[1] as i32) as u32));
    let unsigned = |f: fn(u32, u32) -> u32| one(move |r| u64::from(f(r[0] as u32, r[1] as u32)));
    let sum = |f: fn(i32, i32) -> i32| {
        one(move |r| u64::from(f(r[0] as i32, r[1] as i32).wrapping_add(r[2] as i32) as u32))
    };
    let sum_unsigned = |f: fn(u32, u32) -> u32| {
        one(move |r| u64::from(f(r[0] as u32, r[1] as u32).wrapping_add(r[2] as u32)))
    };
    match (form.name(), form.part(1), form.part(2), form.part(3)) {
        ("add", "sat", "s32", _) => signed(i32::saturating_add),
        ("sub", "sat", "s32", _) => signed(i32::saturating_sub),
        ("min", "relu", "s32", _) => signed(|a, b| a.min(b).relu()),
        ("max", "relu", "s32", _) => signed(|a, b| a.max(b).relu()),
        ("mul24", "lo", "u32", _) => unsigned(integer::multiply_24_low),
        ("mul24", "hi", "u32", _) => unsigned(integer::multiply_24_high),
        ("mul24", "lo", "s32", _) => signed(integer::multiply_24_low_signed),
        ("mul24", "hi", "s32", _) => signed(integer::multiply_24_high_signed),
        ("mad24", "lo", "u32", _) => sum_unsigned(integer::multiply_24_low),
        ("mad24", "hi", "u32", _) => sum_unsigned(integer::multiply_24_high),
        ("mad24", "lo", "s32", _) => sum(integer::multiply_24_low_signed),
        ("mad24", "hi", "s32", _) => sum(integer::multiply_24_high_signed),
        ("mad24", "hi", "sat", "s32") => one(|r| {
            let product = integer::multiply_24_high_signed(r[0] as i32, r[1] as i32);
            u64::from(product.saturating_add(r[2] as i32) as u32)
        }),
        ("mad", "hi", "sat", "s32") => one(|r| {
            let sum = integer::multiply_high_add_saturating(r[0] as i32, r[1] as i32, r[2] as i32);
            u64::from(sum as u32)
        }),
        ("and", _, _, _) => one(|r| r[0] & r[1]),
        ("or", _, _, _) => one(|r| r[0] | r[1]),
        ("xor", _, _, _) => one(|r| r[0] ^ r[1]),
        ("shl", "b16", _, _) => one(|r| u64::from((r[0] as u16).shift_left(r[1] as u32))),
        ("shl", "b32", _, _) => one(|r| u64::from((r[0] as u32).shift_left(r[1] as u32))),
        ("shl", "b64", _, _) => one(|r| r[0].shift_left(r[1] as u32)),
        _ => None,
    }
}

/// Forms of fields, masks and funnels.
fn fields(form: &Instruction) -> Option<Function> {
    let find =
        |width: u32, f: fn(u64) -> u32| one(move |r| u64::from(bits::shift_amount(f(r[0]), width)));
    let wrap = form.has("wrap");
    let last = form.arguments.last().cloned().unwrap_or_default();
    let literal = last.parse::<u32>().ok();
    match (form.name(), form.part(1), form.part(2)) {
        ("bfe", "u32", _) => {
            one(|r| u64::from(bits::extract_32(r[0] as u32, r[1] as u32, r[2] as u32)))
        }
        ("bfe", "s32", _) => {
            one(
                |r| u64::from(bits::extract_32_signed(r[0] as i32, r[1] as u32, r[2] as u32) as u32),
            )
        }
        ("bfe", "u64", _) => one(|r| bits::extract_64(r[0], r[1] as u32, r[2] as u32)),
        ("bfe", "s64", _) => {
            one(|r| bits::extract_64_signed(r[0] as i64, r[1] as u32, r[2] as u32) as u64)
        }
        ("bfi", width, _) => {
            let wide = width == "b64";
            one(move |r| {
                let third = r[2] as u32;
                let (position, length) = literal.map_or((5, third), |length| (third, length));
                if wide {
                    bits::insert_64(r[0], r[1], position, length)
                } else {
                    u64::from(bits::insert_32(r[0] as u32, r[1] as u32, position, length))
                }
            })
        }
        ("bfind", "u32", _) => one(|r| u64::from(bits::find_32(r[0] as u32))),
        ("bfind", "s32", _) => one(|r| u64::from(bits::find_32_signed(r[0] as i32))),
        ("bfind", "u64", _) => one(|r| u64::from(bits::find_64(r[0]))),
        ("bfind", "s64", _) => one(|r| u64::from(bits::find_64_signed(r[0] as i64))),
        ("bfind", _, "u32") => find(32, |a| bits::find_32(a as u32)),
        ("bfind", _, "s32") => find(32, |a| bits::find_32_signed(a as i32)),
        ("bfind", _, "u64") => find(64, bits::find_64),
        ("bfind", _, "s64") => find(64, |a| bits::find_64_signed(a as i64)),
        ("fns", _, _) => {
            one(|r| u64::from(bits::find_nth_set(r[0] as u32, r[1] as u32, r[2] as i32)))
        }
        ("szext", _, "u32") => {
            one(move |r| u64::from(bits::zero_extend(r[0] as u32, r[1] as u32, wrap)))
        }
        ("szext", _, _) => {
            one(move |r| u64::from(bits::sign_extend(r[0] as i32, r[1] as u32, wrap) as u32))
        }
        ("bmsk", _, _) => one(move |r| u64::from(bits::mask(r[0] as u32, r[1] as u32, wrap))),
        ("shf", "l", _) => {
            one(move |r| u64::from(bits::funnel_left(r[0] as u32, r[1] as u32, r[2] as u32, wrap)))
        }
        ("shf", "r", _) => {
            one(move |r| u64::from(bits::funnel_right(r[0] as u32, r[1] as u32, r[2] as u32, wrap)))
        }
        ("lop3", "b32", _) => {
            let table = literal? as u8;
            one(move |r| u64::from(bits::logic(r[0] as u32, r[1] as u32, r[2] as u32, table)))
        }
        _ => None,
    }
}

/// Forms of bytes and halves of a word.
fn pairs(form: &Instruction) -> Option<Function> {
    let two = |f: fn(u32, u32) -> u32| one(move |r| u64::from(f(r[0] as u32, r[1] as u32)));
    let three = |f: fn(u32, u32, u32) -> u32| {
        one(move |r| u64::from(f(r[0] as u32, r[1] as u32, r[2] as u32)))
    };
    let permute =
        |mode| one(move |r| u64::from(bits::permute(r[0] as u32, r[1] as u32, r[2] as u32, mode)));
    match (form.name(), form.part(1), form.part(2), form.part(3)) {
        ("prmt", _, "", _) => permute(Permutation::Bytes),
        ("prmt", _, "f4e", _) => permute(Permutation::Forward4),
        ("prmt", _, "b4e", _) => permute(Permutation::Backward4),
        ("prmt", _, "rc8", _) => permute(Permutation::Replicate8),
        ("prmt", _, "ecl", _) => permute(Permutation::ClampLeft),
        ("prmt", _, "ecr", _) => permute(Permutation::ClampRight),
        ("prmt", _, "rc16", _) => permute(Permutation::Replicate16),
        ("add", "u16x2" | "s16x2", _, _) => two(packed::add_16x2),
        ("min", "u16x2", _, _) => two(packed::min_u16x2),
        ("max", "u16x2", _, _) => two(packed::max_u16x2),
        ("min", "s16x2", _, _) => two(packed::min_s16x2::<false>),
        ("max", "s16x2", _, _) => two(packed::max_s16x2::<false>),
        ("min", "relu", "s16x2", _) => two(packed::min_s16x2::<true>),
        ("max", "relu", "s16x2", _) => two(packed::max_s16x2::<true>),
        ("dp4a", "u32", "u32", _) => three(packed::dot_4::<false, false>),
        ("dp4a", "u32", "s32", _) => three(packed::dot_4::<false, true>),
        ("dp4a", "s32", "u32", _) => three(packed::dot_4::<true, false>),
        ("dp4a", "s32", "s32", _) => three(packed::dot_4::<true, true>),
        ("dp2a", half, a, b) => {
            let upper = half == "hi";
            let dot = match (a, b) {
                ("u32", "u32") => packed::dot_2::<false, false>,
                ("u32", "s32") => packed::dot_2::<false, true>,
                ("s32", "u32") => packed::dot_2::<true, false>,
                _ => packed::dot_2::<true, true>,
            };
            one(move |r| u64::from(dot(r[0] as u32, r[1] as u32, r[2] as u32, upper)))
        }
        _ => None,
    }
}
