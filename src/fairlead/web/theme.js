// The switch between light and dark: it follows the system until it is used, and is remembered by the browser.
(() => {
  const KEY = "fairlead-theme";
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const tell = () => root.dispatchEvent(new Event("theme"));
  const known = () => { try { return localStorage.getItem(KEY); } catch { return null; } };
  if (["light", "dark"].includes(known())) root.dataset.theme = known();
  dark.addEventListener("change", tell);
  document.addEventListener("click", (event) => {
    if (!event.target.closest?.(".theme")) return;
    const isDark = (root.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
    root.dataset.theme = isDark ? "light" : "dark";
    try { localStorage.setItem(KEY, root.dataset.theme); } catch { /* it is not remembered */ }
    tell();
  });
})();
