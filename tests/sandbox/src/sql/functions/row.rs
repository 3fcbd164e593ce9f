//! Scalar functions that work row by row: what a table of definitions says, as functions of the executor.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, exec_err, plan_datafusion_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::super::env::Env;
use crate::types::{ColumnBuilder, DorisType, SessionZone, Value, conform_in};

/// What a function gives: a value, or why the statement fails.
pub(crate) type Outcome = std::result::Result<Value, String>;

/// Types of the arguments of a call, and the texts of those that are literals.
pub(crate) struct Types<'a> {
    pub(crate) env: &'a Env,
    pub(crate) args: &'a [DorisType],
    pub(crate) literals: &'a [Option<Value>],
}

/// One row of a call. Arguments have the classes that the definition asks for.
pub(crate) struct Call<'a> {
    pub(crate) env: &'a Env,
    pub(crate) args: &'a [Value],
    pub(crate) types: &'a [DorisType],
    pub(crate) ret: &'a DorisType,
}

impl Call<'_> {
    /// A text.
    pub(crate) fn s(&self, i: usize) -> &str {
        match self.args.get(i) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }

    /// An integer, or days, or microseconds.
    pub(crate) fn i(&self, i: usize) -> i64 {
        i64::try_from(self.wide(i)).unwrap_or(if self.wide(i) < 0 { i64::MIN } else { i64::MAX })
    }

    /// A wide integer.
    pub(crate) fn wide(&self, i: usize) -> i128 {
        match self.args.get(i) {
            Some(Value::Int(value)) => *value,
            Some(Value::Date(days)) => i128::from(*days),
            Some(Value::DateTime(micros) | Value::Time(micros) | Value::Instant(micros)) => i128::from(*micros),
            _ => 0,
        }
    }

    /// A double.
    pub(crate) fn f(&self, i: usize) -> f64 {
        self.args.get(i).and_then(Value::as_f64).unwrap_or(0.0)
    }

    /// Whether a truth value is true.
    pub(crate) fn b(&self, i: usize) -> bool {
        matches!(self.args.get(i), Some(Value::Bool(true)))
    }

    /// Bytes of a BITMAP or HLL.
    pub(crate) fn bytes(&self, i: usize) -> &[u8] {
        match self.args.get(i) {
            Some(Value::Bytes(bytes)) => bytes,
            _ => &[],
        }
    }

    /// Items of an array.
    pub(crate) fn list(&self, i: usize) -> &[Value] {
        match self.args.get(i) {
            Some(Value::List(items) | Value::Struct(items)) => items,
            _ => &[],
        }
    }

    /// Entries of a map.
    pub(crate) fn entries(&self, i: usize) -> &[(Value, Value)] {
        match self.args.get(i) {
            Some(Value::Map(entries)) => entries,
            _ => &[],
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.args.len()
    }
}

pub(crate) fn text(value: impl Into<String>) -> Outcome {
    Ok(Value::Text(value.into()))
}

pub(crate) fn int(value: impl Into<i128>) -> Outcome {
    Ok(Value::Int(value.into()))
}

pub(crate) fn float(value: f64) -> Outcome {
    Ok(Value::Float(value))
}

pub(crate) fn truth(value: bool) -> Outcome {
    Ok(Value::Bool(value))
}

pub(crate) fn null() -> Outcome {
    Ok(Value::Null)
}

/// A text, or NULL.
pub(crate) fn text_or_null(value: Option<String>) -> Outcome {
    Ok(value.map_or(Value::Null, Value::Text))
}

/// A double that is a number, or NULL.
pub(crate) fn number_or_null(value: f64) -> Outcome {
    Ok(if value.is_nan() { Value::Null } else { Value::Float(value) })
}

/// The type of a result.
pub(crate) enum Ret {
    /// Always this one.
    Is(DorisType),
    /// Made from the arguments' types.
    Of(fn(&Types<'_>) -> std::result::Result<DorisType, String>),
}

/// A function.
pub(crate) struct Def {
    /// Its names; the first one is the executor's, behind `__doris_`.
    pub(crate) names: &'static str,
    /// One letter per argument: `s` text, `i` integer, `L` wide integer, `f` double, `b` truth value, `t` wall clock,
    /// `d` day, `x` span of time, `m` bitmap, `h` sketch, `j` JSON, `a` as it is, `e` as the items of the first argument,
    /// `p` a position in it or a key of it,
    /// `c` in the common type of all such arguments, `k` in the type in which they are compared; then `?` (may be missing) or `+` (one or more).
    pub(crate) args: &'static str,
    pub(crate) ret: Ret,
    /// NULL arguments reach the function; else one makes the result NULL.
    pub(crate) sees_null: bool,
    pub(crate) volatile: bool,
    pub(crate) eval: fn(&Call<'_>) -> Outcome,
}

/// A function that is NULL for a NULL.
pub(crate) fn f(names: &'static str, args: &'static str, ret: DorisType, eval: fn(&Call<'_>) -> Outcome) -> Def {
    Def { names, args, ret: Ret::Is(ret), sees_null: false, volatile: false, eval }
}

/// A function that is NULL for a NULL, with a type made from those of its arguments.
pub(crate) fn g(
    names: &'static str,
    args: &'static str,
    ret: fn(&Types<'_>) -> std::result::Result<DorisType, String>,
    eval: fn(&Call<'_>) -> Outcome,
) -> Def {
    Def { names, args, ret: Ret::Of(ret), sees_null: false, volatile: false, eval }
}

impl Def {
    /// Lets NULL arguments reach the function.
    pub(crate) fn with_nulls(mut self) -> Self {
        self.sees_null = true;
        self
    }

    pub(crate) fn volatile(mut self) -> Self {
        self.volatile = true;
        self
    }

    /// Smallest and largest number of arguments.
    pub(crate) fn arity(&self) -> (usize, usize) {
        arity(self.args)
    }

    /// The name in the executor.
    pub(crate) fn inner_name(&self) -> String {
        inner_name(self.names)
    }
}

/// The executor's name of a definition.
pub(crate) fn inner_name(names: &str) -> String {
    format!("__doris_{}", names.split(' ').next().unwrap_or_default())
}

/// Smallest and largest number of arguments of a specification.
pub(crate) fn arity(args: &str) -> (usize, usize) {
    let letters = args.chars().filter(|c| !matches!(c, '?' | '+')).count();
    let optional = args.chars().filter(|c| *c == '?').count();
    (letters - optional, if args.contains('+') { usize::MAX } else { letters })
}

/// The class of an argument.
pub(crate) fn class(args: &str, i: usize) -> char {
    let letters: Vec<char> = args.chars().filter(|c| !matches!(c, '?' | '+')).collect();
    // Repeated letters are the last ones, a pair repeats as a pair.
    let repeated = args.chars().filter(|c| *c == '+').count();
    match letters.get(i) {
        Some(class) => *class,
        None if repeated > 0 => {
            let tail = &letters[letters.len() - repeated..];
            tail[(i - letters.len()) % repeated]
        }
        None => 'a',
    }
}

/// The type an argument is converted to before the call.
pub(crate) fn target(class: char, own: &DorisType, first: &DorisType, common: &DorisType) -> DorisType {
    match class {
        's' => match own {
            DorisType::Json | DorisType::Variant => own.clone(),
            _ => DorisType::String,
        },
        'i' => DorisType::BigInt,
        'L' => DorisType::LargeInt,
        'f' => DorisType::Double,
        'b' => DorisType::Boolean,
        't' => DorisType::DateTime(6),
        'd' => DorisType::Date,
        'x' => DorisType::Time(6),
        'm' => DorisType::Bitmap,
        'h' => DorisType::Hll,
        'j' => DorisType::Json,
        'e' => match first {
            DorisType::Array(item) => own.common(item, 76).unwrap_or_else(|| (**item).clone()),
            DorisType::Map(key, _) => own.common(key, 76).unwrap_or_else(|| (**key).clone()),
            _ => own.clone(),
        },
        'p' => match first {
            DorisType::Array(_) => DorisType::BigInt,
            DorisType::Map(key, _) => own.common(key, 76).unwrap_or_else(|| (**key).clone()),
            _ => own.clone(),
        },
        'c' | 'k' => common.clone(),
        _ => own.clone(),
    }
}

/// The type in which the arguments of class `c` meet.
pub(crate) fn common_type(args: &str, types: &[DorisType], env: &Env) -> std::result::Result<DorisType, String> {
    if args.starts_with('k') {
        return Ok(compared(types));
    }
    let of = types.iter().enumerate().filter(|(i, _)| class(args, *i) == 'c').map(|(_, ty)| ty);
    DorisType::common_of(of, env.max_precision().max(76)).ok_or_else(|| "arguments have no common type".to_owned())
}

/// The type in which the first of many values is compared with the others.
fn compared(types: &[DorisType]) -> DorisType {
    let any = |is: fn(&DorisType) -> bool| types.iter().any(is);
    let first = types.first().cloned().unwrap_or(DorisType::Null);
    if any(|ty| matches!(ty, DorisType::TimestampTz(_))) {
        return DorisType::TimestampTz(6);
    }
    if any(DorisType::is_time) {
        return DorisType::DateTime(6);
    }
    if any(DorisType::is_text) && !first.is_text() && first != DorisType::Null {
        return if matches!(first, DorisType::Float) { DorisType::Double } else { first };
    }
    if any(DorisType::is_text) && any(DorisType::is_number) {
        return DorisType::Double;
    }
    DorisType::common_of(types, 76).unwrap_or(DorisType::String)
}

struct RowFunction {
    def: &'static Def,
    name: String,
    env: Env,
    signature: Signature,
}

impl fmt::Debug for RowFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl PartialEq for RowFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.env == other.env
    }
}

impl Eq for RowFunction {}

impl Hash for RowFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// The Doris types of fields.
pub(crate) fn doris_types(fields: &[FieldRef]) -> Result<Vec<DorisType>> {
    let ty = |field: &FieldRef| {
        DorisType::of_field(field).ok_or_else(|| exec_datafusion_err!("arguments of Arrow type {}", field.data_type()))
    };
    fields.iter().map(ty).collect()
}

/// A literal argument as a value.
fn literal(value: Option<&ScalarValue>) -> Option<Value> {
    let array = value?.to_array().ok()?;
    let ty = DorisType::of_arrow(array.data_type())?;
    Some(Value::read(&array, 0, &ty))
}

/// Converts one argument to the class it has in the definition.
pub(crate) fn prepare(array: &ArrayRef, from: &DorisType, to: &DorisType, zone: &SessionZone) -> Result<ArrayRef> {
    if from == to {
        return Ok(Arc::clone(array));
    }
    // Nothing of these becomes another type by itself.
    if matches!(to, DorisType::Bitmap | DorisType::Hll) && *from != DorisType::Null {
        return exec_err!("a value of type {from} is no {to}");
    }
    if to.is_text() {
        return Ok(super::cast::to_text(array, from));
    }
    conform_in(array, to, zone).map_err(Into::into)
}

impl ScalarUDFImpl for RowFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        exec_err!("the type of {} comes from its fields", self.name)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types = doris_types(args.arg_fields)?;
        let literals: Vec<Option<Value>> = args.scalar_arguments.iter().map(|value| literal(*value)).collect();
        let ty = match &self.def.ret {
            Ret::Is(ty) => ty.clone(),
            Ret::Of(of) => of(&Types { env: &self.env, args: &types, literals: &literals })
                .map_err(|text| plan_datafusion_err!("{text}"))?,
        };
        Ok(ty.storage_field(&self.name, true))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let own = doris_types(&args.arg_fields)?;
        let ret = DorisType::of_field(&args.return_field)
            .ok_or_else(|| exec_datafusion_err!("{} has no Doris type", self.name))?;
        let common = common_type(self.def.args, &own, &self.env).map_err(|text| exec_datafusion_err!("{text}"))?;
        let first = own.first().cloned().unwrap_or(DorisType::Null);
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_))) && !self.def.volatile;
        let rows = if constant { 1 } else { args.number_rows };
        let mut types = Vec::with_capacity(own.len());
        let mut columns: Vec<(bool, ArrayRef)> = Vec::with_capacity(own.len());
        for (i, (value, ty)) in args.args.iter().zip(&own).enumerate() {
            let to = target(class(self.def.args, i), ty, &first, &common);
            let (single, array) = match value {
                ColumnarValue::Scalar(value) => (true, value.to_array()?),
                ColumnarValue::Array(array) => (false, Arc::clone(array)),
            };
            columns.push((single, prepare(&array, ty, &to, &self.env.zone)?));
            types.push(to);
        }
        let mut builder = ColumnBuilder::in_zone(&ret, self.env.zone);
        let mut values = Vec::with_capacity(columns.len());
        for row in 0..rows {
            values.clear();
            let read = |((single, array), ty): (&(bool, ArrayRef), &DorisType)| {
                Value::read(array.as_ref(), if *single { 0 } else { row }, ty)
            };
            values.extend(columns.iter().zip(&types).map(read));
            if !self.def.sees_null && values.iter().any(Value::is_null) {
                builder.append_null();
                continue;
            }
            let call = Call { env: &self.env, args: &values, types: &types, ret: &ret };
            let value = (self.def.eval)(&call).map_err(|text| exec_datafusion_err!("{text}"))?;
            if builder.append_value(&value).is_err() {
                builder.append_null();
            }
        }
        let array = builder.finish();
        if constant {
            return Ok(ColumnarValue::Scalar(scalar(&array)?));
        }
        Ok(ColumnarValue::Array(array))
    }
}

/// The value of an array of one row; the Doris types of what it holds stay with it.
pub(crate) fn scalar(array: &ArrayRef) -> Result<ScalarValue> {
    Ok(match array.data_type() {
        DataType::List(_) => ScalarValue::List(Arc::new(array.as_list::<i32>().slice(0, 1))),
        DataType::Map(..) => ScalarValue::Map(Arc::new(array.as_map().slice(0, 1))),
        DataType::Struct(_) => ScalarValue::Struct(Arc::new(array.as_struct().slice(0, 1))),
        _ => ScalarValue::try_from_array(array, 0)?,
    })
}

/// The executor's function of a definition.
pub(crate) fn function(def: &'static Def, env: &Env) -> ScalarUDF {
    let volatility = if def.volatile { Volatility::Volatile } else { Volatility::Immutable };
    let signature = match def.arity() {
        (0, 0) => Signature::nullary(volatility),
        _ => Signature::variadic_any(volatility),
    };
    ScalarUDF::from(RowFunction { def, name: def.inner_name(), env: *env, signature })
}
