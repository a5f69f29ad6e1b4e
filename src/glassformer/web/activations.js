// The activation functions of core/model.py, and erf, which browsers lack.

export const ACTIVATIONS = {
  relu: (x) => Math.max(x, 0),
  gelu: (x) => 0.5 * x * (1 + erf(x * Math.SQRT1_2)),
  gelu_new: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x))),
  silu: (x) => 0.5 * x * (1 + Math.tanh(0.5 * x)),
};

/** The error function after W. J. Cody (1969), as in core/backend.py. */
export function erf(x) {
  const y = Math.min(Math.abs(x), 6), z = y * y; // erf(6) is 1 in float64
  if (y < 0.5) return x * polynomial(SMALL_NUMERATOR, z) / polynomial(SMALL_DENOMINATOR, z);
  const tail = 1 - Math.exp(-z) * polynomial(TAIL_NUMERATOR, y) / polynomial(TAIL_DENOMINATOR, y);
  return x < 0 ? -tail : tail;
}

function polynomial(coefficients, x) {
  let y = coefficients[0];
  for (let i = 1; i < coefficients.length; i++) y = y * x + coefficients[i];
  return y;
}

const SMALL_NUMERATOR = [1.85777706184603153e-1, 3.1611237438705656, 1.13864154151050156e2,
  3.77485237685302021e2, 3.20937758913846947e3];
const SMALL_DENOMINATOR = [1, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3,
  2.84423683343917062e3];
const TAIL_NUMERATOR = [2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594,
  6.61191906371416295e1, 2.98635138197400131e2, 8.8195222124176909e2, 1.71204761263407058e3,
  2.05107837782607147e3, 1.23033935479799725e3];
const TAIL_DENOMINATOR = [1, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2,
  1.62138957456669019e3, 3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3,
  1.23033935480374942e3];
