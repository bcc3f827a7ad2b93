"""INFless: instances of many sizes, each with a range of request rates, scaled out by throughput over leftover room."""
