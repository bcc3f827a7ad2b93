// Numbers as people read them.
const digits = (value, most) => value.toLocaleString("en-US", { maximumSignificantDigits: most, useGrouping: false });
const NONE = "–";

export const number = (value, most = 3) => (value == null ? NONE : value >= 1000 ? Math.round(value).toLocaleString("en-US") : digits(value, most));

export function duration(seconds) {
  if (seconds == null) return NONE;
  if (seconds === 0) return "0 ms";
  if (Math.abs(seconds) < 1e-3) return `${digits(seconds * 1e6, 2)} µs`;
  if (Math.abs(seconds) < 0.9995) return `${digits(seconds * 1e3, 3)} ms`;
  if (Math.abs(seconds) < 120) return `${digits(seconds, 3)} s`;
  if (Math.abs(seconds) < 7200) return `${Math.round(seconds / 60)} min`;
  return `${digits(seconds / 3600, 3)} h`;
}

export const rate = (value) => (value == null ? NONE : value && value < 0.05 ? "< 0.1/s" : `${number(value >= 100 ? Math.round(value) : Math.round(value * 10) / 10, 4)}/s`);

export function share(value) {
  if (value == null) return NONE;
  const percent = value * 100;
  // Never "100 %" for what is less.
  const text = percent === 100 || percent === 0 ? `${percent}` : percent > 99 ? Math.min(99.9, percent).toFixed(1) : percent < 10 ? percent.toFixed(1) : percent.toFixed(0);
  return `${text} %`;
}

export function dollars(value) {
  if (value == null) return NONE;
  if (value === 0) return "$0";
  return value >= 0.1 ? `$${value.toFixed(value >= 10 ? 1 : 2)}` : `$${digits(value, 2)}`;
}

export const memory = (gb) => (gb == null ? NONE : gb < 1 ? `${Math.round(gb * 1024)} MB` : `${digits(gb, 3)} GB`);

export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");

export const plural = (count, one, several = `${one}s`) => `${number(count)} ${count === 1 ? one : several}`;

export const grade = (attained) => (attained == null ? "" : attained >= 0.99 ? "good" : attained >= 0.9 ? "fair" : "poor");

export const KINDS = {
  in_time: "In time", late: "Late", rejected: "Refused", dropped: "Dropped", failed: "Failed", cancelled: "Cancelled",
};
