"""Files that browsers load: the dashboard's page, what it is drawn with, and the colours that reports share.

No code: the gateway serves them, and reports take `theme.css` and `theme.js` into their pages. `vendor/` holds the
work of others, as listed in `vendor/README.md`.
"""
