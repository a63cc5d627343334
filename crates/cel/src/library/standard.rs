//! Operators, conversions and the other functions that every CEL has.

mod calls;

use super::{Cost, Overload, global, member};
use crate::types::Type::{self, Bool, Bytes, Double, Duration, Dyn, Int, String, Timestamp, Uint};

fn a() -> Type {
    Type::param("A")
}

fn b() -> Type {
    Type::param("B")
}

fn list_a() -> Type {
    Type::list(a())
}

fn map_ab() -> Type {
    Type::map(a(), b())
}

/// The overloads.
pub(super) fn rows() -> Vec<Overload> {
    vec![
        global("_?_:_", "conditional", [Bool, a(), a()], a()).cost(Cost::Conditional),
        global("_&&_", "logical_and", [Bool, Bool], Bool).cost(Cost::Logical),
        global("_||_", "logical_or", [Bool, Bool], Bool).cost(Cost::Logical),
        global("!_", "logical_not", [Bool], Bool).call(calls::not),
        global("@not_strictly_false", "not_strictly_false", [Bool], Bool),
        global("_==_", "equals", [a(), a()], Bool).cost(Cost::Compare),
        global("_!=_", "not_equals", [a(), a()], Bool).cost(Cost::Compare),
        global("_+_", "add_bytes", [Bytes, Bytes], Bytes).cost(Cost::Concat).call(calls::add),
        global("_+_", "add_double", [Double, Double], Double).call(calls::add),
        global("_+_", "add_duration_duration", [Duration, Duration], Duration).call(calls::add),
        global("_+_", "add_duration_timestamp", [Duration, Timestamp], Timestamp).call(calls::add),
        global("_+_", "add_timestamp_duration", [Timestamp, Duration], Timestamp).call(calls::add),
        global("_+_", "add_int64", [Int, Int], Int).call(calls::add),
        global("_+_", "add_list", [list_a(), list_a()], list_a())
            .cost(Cost::AddList)
            .call(calls::add),
        global("_+_", "add_string", [String, String], String).cost(Cost::Concat).call(calls::add),
        global("_+_", "add_uint64", [Uint, Uint], Uint).call(calls::add),
        global("_/_", "divide_double", [Double, Double], Double).call(calls::divide),
        global("_/_", "divide_int64", [Int, Int], Int).call(calls::divide),
        global("_/_", "divide_uint64", [Uint, Uint], Uint).call(calls::divide),
        global("_%_", "modulo_int64", [Int, Int], Int).call(calls::modulo),
        global("_%_", "modulo_uint64", [Uint, Uint], Uint).call(calls::modulo),
        global("_*_", "multiply_double", [Double, Double], Double).call(calls::multiply),
        global("_*_", "multiply_int64", [Int, Int], Int).call(calls::multiply),
        global("_*_", "multiply_uint64", [Uint, Uint], Uint).call(calls::multiply),
        global("-_", "negate_double", [Double], Double).call(calls::negate),
        global("-_", "negate_int64", [Int], Int).call(calls::negate),
        global("_-_", "subtract_double", [Double, Double], Double).call(calls::subtract),
        global("_-_", "subtract_duration_duration", [Duration, Duration], Duration)
            .call(calls::subtract),
        global("_-_", "subtract_int64", [Int, Int], Int).call(calls::subtract),
        global("_-_", "subtract_timestamp_duration", [Timestamp, Duration], Timestamp)
            .call(calls::subtract),
        global("_-_", "subtract_timestamp_timestamp", [Timestamp, Timestamp], Duration)
            .call(calls::subtract),
        global("_-_", "subtract_uint64", [Uint, Uint], Uint).call(calls::subtract),
        global("_<_", "less_bool", [Bool, Bool], Bool).call(calls::less),
        global("_<_", "less_int64", [Int, Int], Bool).call(calls::less),
        global("_<_", "less_int64_double", [Int, Double], Bool).call(calls::less),
        global("_<_", "less_int64_uint64", [Int, Uint], Bool).call(calls::less),
        global("_<_", "less_uint64", [Uint, Uint], Bool).call(calls::less),
        global("_<_", "less_uint64_double", [Uint, Double], Bool).call(calls::less),
        global("_<_", "less_uint64_int64", [Uint, Int], Bool).call(calls::less),
        global("_<_", "less_double", [Double, Double], Bool).call(calls::less),
        global("_<_", "less_double_int64", [Double, Int], Bool).call(calls::less),
        global("_<_", "less_double_uint64", [Double, Uint], Bool).call(calls::less),
        global("_<_", "less_string", [String, String], Bool).cost(Cost::Compare).call(calls::less),
        global("_<_", "less_bytes", [Bytes, Bytes], Bool).cost(Cost::Compare).call(calls::less),
        global("_<_", "less_timestamp", [Timestamp, Timestamp], Bool).call(calls::less),
        global("_<_", "less_duration", [Duration, Duration], Bool).call(calls::less),
        global("_<=_", "less_equals_bool", [Bool, Bool], Bool).call(calls::less_equals),
        global("_<=_", "less_equals_int64", [Int, Int], Bool).call(calls::less_equals),
        global("_<=_", "less_equals_int64_double", [Int, Double], Bool).call(calls::less_equals),
        global("_<=_", "less_equals_int64_uint64", [Int, Uint], Bool).call(calls::less_equals),
        global("_<=_", "less_equals_uint64", [Uint, Uint], Bool).call(calls::less_equals),
        global("_<=_", "less_equals_uint64_double", [Uint, Double], Bool).call(calls::less_equals),
        global("_<=_", "less_equals_uint64_int64", [Uint, Int], Bool).call(calls::less_equals),
        global("_<=_", "less_equals_double", [Double, Double], Bool).call(calls::less_equals),
        global("_<=_", "less_equals_double_int64", [Double, Int], Bool).call(calls::less_equals),
        global("_<=_", "less_equals_double_uint64", [Double, Uint], Bool).call(calls::less_equals),
        global("_<=_", "less_equals_string", [String, String], Bool)
            .cost(Cost::Compare)
            .call(calls::less_equals),
        global("_<=_", "less_equals_bytes", [Bytes, Bytes], Bool)
            .cost(Cost::Compare)
            .call(calls::less_equals),
        global("_<=_", "less_equals_timestamp", [Timestamp, Timestamp], Bool)
            .call(calls::less_equals),
        global("_<=_", "less_equals_duration", [Duration, Duration], Bool).call(calls::less_equals),
        global("_>_", "greater_bool", [Bool, Bool], Bool).call(calls::greater),
        global("_>_", "greater_int64", [Int, Int], Bool).call(calls::greater),
        global("_>_", "greater_int64_double", [Int, Double], Bool).call(calls::greater),
        global("_>_", "greater_int64_uint64", [Int, Uint], Bool).call(calls::greater),
        global("_>_", "greater_uint64", [Uint, Uint], Bool).call(calls::greater),
        global("_>_", "greater_uint64_double", [Uint, Double], Bool).call(calls::greater),
        global("_>_", "greater_uint64_int64", [Uint, Int], Bool).call(calls::greater),
        global("_>_", "greater_double", [Double, Double], Bool).call(calls::greater),
        global("_>_", "greater_double_int64", [Double, Int], Bool).call(calls::greater),
        global("_>_", "greater_double_uint64", [Double, Uint], Bool).call(calls::greater),
        global("_>_", "greater_string", [String, String], Bool)
            .cost(Cost::Compare)
            .call(calls::greater),
        global("_>_", "greater_bytes", [Bytes, Bytes], Bool)
            .cost(Cost::Compare)
            .call(calls::greater),
        global("_>_", "greater_timestamp", [Timestamp, Timestamp], Bool).call(calls::greater),
        global("_>_", "greater_duration", [Duration, Duration], Bool).call(calls::greater),
        global("_>=_", "greater_equals_bool", [Bool, Bool], Bool).call(calls::greater_equals),
        global("_>=_", "greater_equals_int64", [Int, Int], Bool).call(calls::greater_equals),
        global("_>=_", "greater_equals_int64_double", [Int, Double], Bool)
            .call(calls::greater_equals),
        global("_>=_", "greater_equals_int64_uint64", [Int, Uint], Bool)
            .call(calls::greater_equals),
        global("_>=_", "greater_equals_uint64", [Uint, Uint], Bool).call(calls::greater_equals),
        global("_>=_", "greater_equals_uint64_double", [Uint, Double], Bool)
            .call(calls::greater_equals),
        global("_>=_", "greater_equals_uint64_int64", [Uint, Int], Bool)
            .call(calls::greater_equals),
        global("_>=_", "greater_equals_double", [Double, Double], Bool).call(calls::greater_equals),
        global("_>=_", "greater_equals_double_int64", [Double, Int], Bool)
            .call(calls::greater_equals),
        global("_>=_", "greater_equals_double_uint64", [Double, Uint], Bool)
            .call(calls::greater_equals),
        global("_>=_", "greater_equals_string", [String, String], Bool)
            .cost(Cost::Compare)
            .call(calls::greater_equals),
        global("_>=_", "greater_equals_bytes", [Bytes, Bytes], Bool)
            .cost(Cost::Compare)
            .call(calls::greater_equals),
        global("_>=_", "greater_equals_timestamp", [Timestamp, Timestamp], Bool)
            .call(calls::greater_equals),
        global("_>=_", "greater_equals_duration", [Duration, Duration], Bool)
            .call(calls::greater_equals),
        global("_[_]", "index_list", [list_a(), Int], a()).cost(Cost::IndexList),
        global("_[_]", "index_map", [map_ab(), a()], b()).cost(Cost::IndexMap),
        global("@in", "in_list", [a(), list_a()], Bool).cost(Cost::InList).call(calls::contained),
        global("@in", "in_map", [a(), map_ab()], Bool).call(calls::contained),
        global("size", "size_bytes", [Bytes], Int).call(calls::size),
        member("size", "bytes_size", [Bytes], Int).call(calls::size),
        global("size", "size_list", [list_a()], Int).call(calls::size),
        member("size", "list_size", [list_a()], Int).call(calls::size),
        global("size", "size_map", [map_ab()], Int).call(calls::size),
        member("size", "map_size", [map_ab()], Int).call(calls::size),
        global("size", "size_string", [String], Int).call(calls::size),
        member("size", "string_size", [String], Int).call(calls::size),
        global("type", "type", [a()], Type::type_of(a())).call(calls::type_of),
        global("bool", "bool_to_bool", [Bool], Bool).call(calls::to_bool),
        global("bool", "string_to_bool", [String], Bool).call(calls::to_bool),
        global("bytes", "bytes_to_bytes", [Bytes], Bytes).call(calls::to_bytes),
        global("bytes", "string_to_bytes", [String], Bytes)
            .cost(Cost::StringToBytes)
            .call(calls::to_bytes),
        global("double", "double_to_double", [Double], Double).call(calls::to_double),
        global("double", "int64_to_double", [Int], Double).call(calls::to_double),
        global("double", "string_to_double", [String], Double).call(calls::to_double),
        global("double", "uint64_to_double", [Uint], Double).call(calls::to_double),
        global("duration", "duration_to_duration", [Duration], Duration).call(calls::to_duration),
        global("duration", "int64_to_duration", [Int], Duration).call(calls::to_duration),
        global("duration", "string_to_duration", [String], Duration).call(calls::to_duration),
        global("dyn", "to_dyn", [a()], Dyn).call(calls::same),
        global("int", "int64_to_int64", [Int], Int).call(calls::to_int),
        global("int", "double_to_int64", [Double], Int).call(calls::to_int),
        global("int", "duration_to_int64", [Duration], Int).call(calls::to_int),
        global("int", "string_to_int64", [String], Int).call(calls::to_int),
        global("int", "timestamp_to_int64", [Timestamp], Int).call(calls::to_int),
        global("int", "uint64_to_int64", [Uint], Int).call(calls::to_int),
        global("string", "string_to_string", [String], String).call(calls::to_string),
        global("string", "bool_to_string", [Bool], String).call(calls::to_string),
        global("string", "bytes_to_string", [Bytes], String)
            .cost(Cost::BytesToString)
            .call(calls::to_string),
        global("string", "double_to_string", [Double], String).call(calls::to_string),
        global("string", "duration_to_string", [Duration], String).call(calls::to_string),
        global("string", "int64_to_string", [Int], String).call(calls::to_string),
        global("string", "timestamp_to_string", [Timestamp], String).call(calls::to_string),
        global("string", "uint64_to_string", [Uint], String).call(calls::to_string),
        global("timestamp", "timestamp_to_timestamp", [Timestamp], Timestamp)
            .call(calls::to_timestamp),
        global("timestamp", "int64_to_timestamp", [Int], Timestamp).call(calls::to_timestamp),
        global("timestamp", "string_to_timestamp", [String], Timestamp).call(calls::to_timestamp),
        global("uint", "uint64_to_uint64", [Uint], Uint).call(calls::to_uint),
        global("uint", "double_to_uint64", [Double], Uint).call(calls::to_uint),
        global("uint", "int64_to_uint64", [Int], Uint).call(calls::to_uint),
        global("uint", "string_to_uint64", [String], Uint).call(calls::to_uint),
        member("contains", "contains_string", [String, String], Bool)
            .cost(Cost::Contains)
            .call(calls::contains),
        member("endsWith", "ends_with_string", [String, String], Bool)
            .cost(Cost::Affix)
            .call(calls::ends_with),
        member("startsWith", "starts_with_string", [String, String], Bool)
            .cost(Cost::Affix)
            .call(calls::starts_with),
        global("matches", "matches", [String, String], Bool).call(calls::matches),
        member("matches", "matches_string", [String, String], Bool)
            .cost(Cost::Matches)
            .call(calls::matches),
        member("getFullYear", "timestamp_to_year", [Timestamp], Int).call(calls::full_year),
        member("getFullYear", "timestamp_to_year_with_tz", [Timestamp, String], Int)
            .call(calls::full_year),
        member("getMonth", "timestamp_to_month", [Timestamp], Int).call(calls::month),
        member("getMonth", "timestamp_to_month_with_tz", [Timestamp, String], Int)
            .call(calls::month),
        member("getDayOfYear", "timestamp_to_day_of_year", [Timestamp], Int)
            .call(calls::day_of_year),
        member("getDayOfYear", "timestamp_to_day_of_year_with_tz", [Timestamp, String], Int)
            .call(calls::day_of_year),
        member("getDayOfMonth", "timestamp_to_day_of_month", [Timestamp], Int)
            .call(calls::day_of_month),
        member("getDayOfMonth", "timestamp_to_day_of_month_with_tz", [Timestamp, String], Int)
            .call(calls::day_of_month),
        member("getDate", "timestamp_to_day_of_month_1_based", [Timestamp], Int).call(calls::date),
        member("getDate", "timestamp_to_day_of_month_1_based_with_tz", [Timestamp, String], Int)
            .call(calls::date),
        member("getDayOfWeek", "timestamp_to_day_of_week", [Timestamp], Int)
            .call(calls::day_of_week),
        member("getDayOfWeek", "timestamp_to_day_of_week_with_tz", [Timestamp, String], Int)
            .call(calls::day_of_week),
        member("getHours", "timestamp_to_hours", [Timestamp], Int).call(calls::hours),
        member("getHours", "timestamp_to_hours_with_tz", [Timestamp, String], Int)
            .call(calls::hours),
        member("getHours", "duration_to_hours", [Duration], Int).call(calls::hours),
        member("getMinutes", "timestamp_to_minutes", [Timestamp], Int).call(calls::minutes),
        member("getMinutes", "timestamp_to_minutes_with_tz", [Timestamp, String], Int)
            .call(calls::minutes),
        member("getMinutes", "duration_to_minutes", [Duration], Int).call(calls::minutes),
        member("getSeconds", "timestamp_to_seconds", [Timestamp], Int).call(calls::seconds),
        member("getSeconds", "timestamp_to_seconds_tz", [Timestamp, String], Int)
            .call(calls::seconds),
        member("getSeconds", "duration_to_seconds", [Duration], Int).call(calls::seconds),
        member("getMilliseconds", "timestamp_to_milliseconds", [Timestamp], Int)
            .call(calls::milliseconds),
        member("getMilliseconds", "timestamp_to_milliseconds_with_tz", [Timestamp, String], Int)
            .call(calls::milliseconds),
        member("getMilliseconds", "duration_to_milliseconds", [Duration], Int)
            .call(calls::milliseconds),
    ]
}
