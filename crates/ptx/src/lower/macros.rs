//! Shorthands for functions over lanes. Each makes one function of its own for each use.

/// A function over lanes in both forms: `pure!(|lanes, op| …)`.
macro_rules! pure {
    (|$lanes:ident, $op:ident| $body:expr) => {{
        #[inline]
        fn plain($lanes: &mut crate::code::Lanes<'_>, $op: &crate::code::Op) {
            $body;
        }
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
        fn wide($lanes: &mut crate::code::Lanes<'_>, $op: &crate::code::Op) {
            $body;
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        use plain as wide;
        crate::code::chosen(plain, wide)
    }};
}

/// A function of one register: `un!(u32 => u32, |a| !a)`. Modifiers that the instruction's immediate has are
/// taken once for all lanes: `un!(u32 => u32, how of decode, |a| f(a, how))`.
macro_rules! un {
    ($a:ty => $r:ty, |$x:ident| $body:expr) => {
        crate::lower::macros::pure!(|lanes, op| crate::code::unary::<$a, $r>(lanes, op, |$x| $body))
            .or(|lines, lanes, op| crate::code::once::unary::<$a, $r>(lines, lanes, op, |$x| $body))
    };
    ($a:ty => $r:ty, $how:ident of $of:expr, |$x:ident| $body:expr) => {
        crate::lower::macros::pure!(|lanes, op| {
            let $how = $of(op.imm);
            crate::code::unary::<$a, $r>(lanes, op, |$x| $body);
        })
        .or(|lines, lanes, op| {
            let $how = $of(op.imm);
            crate::code::once::unary::<$a, $r>(lines, lanes, op, |$x| $body)
        })
    };
}

/// A function of two registers: `bin!(u32, u32 => u32, |a, b| a & b)`. See [`un`] for modifiers.
macro_rules! bin {
    ($a:ty, $b:ty => $r:ty, |$x:ident, $y:ident| $body:expr) => {
        crate::lower::macros::pure!(|lanes, op| crate::code::binary::<$a, $b, $r>(
            lanes,
            op,
            |$x, $y| $body
        ))
        .or(|lines, lanes, op| {
            crate::code::once::binary::<$a, $b, $r>(lines, lanes, op, |$x, $y| $body)
        })
    };
    ($a:ty, $b:ty => $r:ty, $how:ident of $of:expr, |$x:ident, $y:ident| $body:expr) => {
        crate::lower::macros::pure!(|lanes, op| {
            let $how = $of(op.imm);
            crate::code::binary::<$a, $b, $r>(lanes, op, |$x, $y| $body);
        })
        .or(|lines, lanes, op| {
            let $how = $of(op.imm);
            crate::code::once::binary::<$a, $b, $r>(lines, lanes, op, |$x, $y| $body)
        })
    };
}

/// A function of three registers. See [`un`] for modifiers.
macro_rules! ter {
    ($a:ty, $b:ty, $c:ty => $r:ty, |$x:ident, $y:ident, $z:ident| $body:expr) => {
        crate::lower::macros::pure!(|lanes, op| crate::code::ternary::<$a, $b, $c, $r>(
            lanes,
            op,
            |$x, $y, $z| $body
        ))
        .or(|lines, lanes, op| {
            crate::code::once::ternary::<$a, $b, $c, $r>(lines, lanes, op, |$x, $y, $z| $body)
        })
    };
    ($a:ty, $b:ty, $c:ty => $r:ty, $how:ident of $of:expr, |$x:ident, $y:ident, $z:ident| $body:expr) => {
        crate::lower::macros::pure!(|lanes, op| {
            let $how = $of(op.imm);
            crate::code::ternary::<$a, $b, $c, $r>(lanes, op, |$x, $y, $z| $body);
        })
        .or(|lines, lanes, op| {
            let $how = $of(op.imm);
            crate::code::once::ternary::<$a, $b, $c, $r>(lines, lanes, op, |$x, $y, $z| $body)
        })
    };
}

/// A function of one register, and the line of its results: `line_un!(u32 => u32, |a| Some(a), a)`.
macro_rules! line_un {
    ($a:ty => $r:ty, |$x:ident| $line:expr, $body:expr) => {
        crate::lower::macros::pure!(|lanes, op| crate::code::unary::<$a, $r>(lanes, op, |$x| $body))
            .or(|lines, lanes, op| {
                crate::code::once::line_unary::<$a, $r>(lines, lanes, op, |$x| $line)
            })
    };
}

/// A function of two registers, and the line of its results.
macro_rules! line_bin {
    ($a:ty, $b:ty => $r:ty, |$x:ident, $y:ident| $line:expr, $body:expr) => {
        crate::lower::macros::pure!(|lanes, op| crate::code::binary::<$a, $b, $r>(
            lanes,
            op,
            |$x, $y| $body
        ))
        .or(|lines, lanes, op| {
            crate::code::once::line_binary::<$a, $b, $r>(lines, lanes, op, |$x, $y| $line)
        })
    };
}

/// A function of three registers, and the line of its results.
macro_rules! line_ter {
    ($a:ty, $b:ty, $c:ty => $r:ty, |$x:ident, $y:ident, $z:ident| $line:expr, $body:expr) => {
        crate::lower::macros::pure!(|lanes, op| crate::code::ternary::<$a, $b, $c, $r>(
            lanes,
            op,
            |$x, $y, $z| $body
        ))
        .or(|lines, lanes, op| {
            crate::code::once::line_ternary::<$a, $b, $c, $r>(lines, lanes, op, |$x, $y, $z| $line)
        })
    };
}

/// A slow function of one register, which may read the instruction's immediate.
macro_rules! slow_un {
    ($a:ty => $r:ty, |$op:ident, $x:ident| $body:expr) => {
        crate::lower::macros::pure!(|lanes, $op| crate::code::slow_unary::<$a, $r>(
            lanes,
            $op,
            |$x| $body
        ))
        .or(|lines, lanes, $op| crate::code::once::unary::<$a, $r>(lines, lanes, $op, |$x| $body))
    };
}

/// A slow function of two registers, which may read the instruction's immediate.
macro_rules! slow_bin {
    ($a:ty, $b:ty => $r:ty, |$op:ident, $x:ident, $y:ident| $body:expr) => {
        crate::lower::macros::pure!(|lanes, $op| crate::code::slow_binary::<$a, $b, $r>(
            lanes,
            $op,
            |$x, $y| $body
        ))
        .or(|lines, lanes, $op| {
            crate::code::once::binary::<$a, $b, $r>(lines, lanes, $op, |$x, $y| $body)
        })
    };
}

/// A slow function of three registers, which may read the instruction's immediate.
macro_rules! slow_ter {
    ($a:ty, $b:ty, $c:ty => $r:ty, |$op:ident, $x:ident, $y:ident, $z:ident| $body:expr) => {
        crate::lower::macros::pure!(|lanes, $op| crate::code::slow_ternary::<$a, $b, $c, $r>(
            lanes,
            $op,
            |$x, $y, $z| $body
        ))
        .or(|lines, lanes, $op| {
            crate::code::once::ternary::<$a, $b, $c, $r>(lines, lanes, $op, |$x, $y, $z| $body)
        })
    };
}

/// One expression for each of several types, in which `$t` is the type.
macro_rules! by_kind {
    ($kind:expr, $t:ident => $body:expr, { $($($case:ident)|+ => $type:ty),+ $(,)? }) => {
        match $kind {
            $($(crate::types::Type::$case)|+ => {
                type $t = $type;
                $body
            })+
            other => return Err(format!("{other:?} is no type of this instruction")),
        }
    };
}

/// One expression for each integer type of arithmetic, in which `$t` is the type.
macro_rules! by_integer {
    ($kind:expr, $t:ident => $body:expr) => {
        crate::lower::macros::by_kind!($kind, $t => $body, {
            U16 => u16, S16 => i16, U32 => u32, S32 => i32, U64 => u64, S64 => i64,
        })
    };
}

/// One expression for each integer type that fills a register, and another for those of 16 bits.
macro_rules! by_whole {
    ($kind:expr, $t:ident => $whole:expr, $half:expr) => {
        match $kind {
            crate::types::Type::U16 | crate::types::Type::S16 => {
                crate::lower::macros::by_kind!($kind, $t => $half, { U16 => u16, S16 => i16 })
            }
            _ => crate::lower::macros::by_kind!($kind, $t => $whole, {
                U32 => u32, S32 => i32, U64 => u64, S64 => i64,
            }),
        }
    };
}

/// One expression for each integer type of conversions: those of 8 bits and untyped bits, too.
macro_rules! by_any_integer {
    ($kind:expr, $t:ident => $body:expr) => {
        crate::lower::macros::by_kind!($kind, $t => $body, {
            U8 | B8 => u8, S8 => i8, U16 | B16 => u16, S16 => i16,
            U32 | B32 => u32, S32 => i32, U64 | B64 => u64, S64 => i64,
        })
    };
}

/// One expression for each width of bits, in which `$t` is the unsigned type.
macro_rules! by_bits {
    ($kind:expr, $t:ident => $body:expr) => {
        match crate::types::Type::register_bits($kind) {
            16 => {
                type $t = u16;
                $body
            }
            32 => {
                type $t = u32;
                $body
            }
            64 => {
                type $t = u64;
                $body
            }
            _ => return Err("no type of this instruction".to_owned()),
        }
    };
}

pub(super) use {
    bin, by_any_integer, by_bits, by_integer, by_kind, by_whole, line_bin, line_ter, line_un, pure,
    slow_bin, slow_ter, slow_un, ter, un,
};
