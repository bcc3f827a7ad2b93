/* The kernels of the shipped graphs, in what OpenCL C and CUDA C++ have in common: see opencl.h and cuda.h. */

KERNEL gemm(const int m, const int n, const int k, GLOBAL const float *a, GLOBAL const float *b, GLOBAL float *c) {
  const int column = X, row = Y;
  if (row >= m || column >= n) return;
  float sum = 0.0f;
  for (int i = 0; i < k; i++) sum += a[row * k + i] * b[i * n + column];
  c[row * n + column] = sum;
}

KERNEL bias_relu(const int rows, const int columns, GLOBAL const float *x, GLOBAL const float *bias, GLOBAL float *y) {
  const int i = X;
  if (i >= rows * columns) return;
  const float sum = x[i] + bias[i % columns];
  y[i] = sum > 0.0f ? sum : 0.0f;
}

KERNEL bias_softmax(const int rows, const int columns, GLOBAL const float *x, GLOBAL const float *bias, GLOBAL float *y) {
  const int row = X;
  if (row >= rows) return;
  float most = x[row * columns] + bias[0], sum = 0.0f;
  for (int j = 1; j < columns; j++) most = fmax(most, x[row * columns + j] + bias[j]);
  for (int j = 0; j < columns; j++) {
    const float power = exp(x[row * columns + j] + bias[j] - most);
    y[row * columns + j] = power;
    sum += power;
  }
  for (int j = 0; j < columns; j++) y[row * columns + j] /= sum;
}

KERNEL conv3x3_relu(const int channels, const int height, const int width, const int filters, GLOBAL const float *x,
                    GLOBAL const float *w, GLOBAL const float *b, GLOBAL float *y) {
  const int column = X, row = Y, filter = Z;
  if (column >= width || row >= height || filter >= filters) return;
  float sum = b[filter];
  for (int channel = 0; channel < channels; channel++)
    for (int i = 0; i < 3; i++)
      for (int j = 0; j < 3; j++) {
        const int from_row = row + i - 1, from_column = column + j - 1;
        if (from_row < 0 || from_row >= height || from_column < 0 || from_column >= width) continue;
        sum += x[(channel * height + from_row) * width + from_column] * w[((filter * channels + channel) * 3 + i) * 3 + j];
      }
  y[(filter * height + row) * width + column] = sum > 0.0f ? sum : 0.0f;
}

KERNEL maxpool2(const int channels, const int height, const int width, GLOBAL const float *x, GLOBAL float *y) {
  const int column = X, row = Y, channel = Z;
  if (column >= width / 2 || row >= height / 2 || channel >= channels) return;
  const int corner = (channel * height + 2 * row) * width + 2 * column;
  const float above = fmax(x[corner], x[corner + 1]), below = fmax(x[corner + width], x[corner + width + 1]);
  y[(channel * (height / 2) + row) * (width / 2) + column] = fmax(above, below);
}

KERNEL jacobi(const int n, GLOBAL const float *a, GLOBAL const float *b, GLOBAL const float *x, GLOBAL float *y) {
  const int row = X;
  if (row >= n) return;
  float sum = 0.0f;
  for (int j = 0; j < n; j++)
    if (j != row) sum += a[row * n + j] * x[j];
  y[row] = (b[row] - sum) / a[row * n + row];
}

KERNEL scale(const int n, const float factor, GLOBAL const float *x, GLOBAL float *y) {
  const int i = X;
  if (i < n) y[i] = factor * x[i];
}
